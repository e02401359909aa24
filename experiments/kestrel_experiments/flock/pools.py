"""The pools of an experiment: each on its own, or in a flock with ways of some length."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path

from kestrel_experiments.flock.relay import Relay
from kestrel_experiments.flock.source import MACHINES
from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.flock_membership import server_address
from kestrelctl.local.pool_state import PoolState
from kestrelctl.local.throw_away_flock import throw_away_flock
from kestrelctl.metrics.endpoint import parse_address
from kestrelctl.xmpp.prosody import LOOPBACK


class FlockPools:
    """Pools that run.

    Attributes:
        states: by the letters of the pools.
        ways: by the letters of two pools, the relay of the streams that the first opens to the
            second; empty where they talk to each other directly.
    """

    def __init__(
        self, states: dict[str, PoolState], ways: dict[tuple[str, str], Relay] | None = None
    ) -> None:
        self.states = states
        self.ways = ways or {}

    def ways_of(self, name: str) -> list[Relay]:
        """Returns the relays of the streams from and to a pool."""
        return [relay for pair, relay in self.ways.items() if name in pair]


@contextlib.asynccontextmanager
async def lone_pools(names: Iterable[str]) -> AsyncIterator[FlockPools]:
    """Runs pools that know of no other, made as by `kestrelctl up`, for the length of a `with`."""
    names = list(names)
    async with contextlib.AsyncExitStack() as stack:
        pools = (stack.enter_async_context(throw_away_pool(MACHINES, metrics=False)) for _ in names)
        states = await asyncio.gather(*pools)
        yield FlockPools(dict(zip(names, states, strict=True)))


@contextlib.asynccontextmanager
async def flocked_pools(
    names: Iterable[str],
    minute_seconds: float,
    delay_seconds: float,
    *,
    reclaim_minutes: float,
    by_relays: bool = False,
    is_fixed: bool = False,
) -> AsyncIterator[FlockPools]:
    """Runs pools that each know the first one when they start, for the length of a `with`.

    Args:
        minute_seconds: length of a minute of the flock.
        reclaim_minutes: how long tasks of others may go on while own ones wait.
        delay_seconds: delay between each two servers, each way.
        by_relays: whether their streams go through relays, which can be cut, in any case.
        is_fixed: whether each is told of all others instead, and hears nothing of what is free.
    """
    names = list(names)
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kestrel-")))
        ways = {}
        if delay_seconds or by_relays:
            for name, other in itertools.permutations(names, 2):
                relay = Relay(partial(_server_of, directory, other), delay_seconds)
                ways[name, other] = await stack.enter_async_context(relay.open())
        flock = await stack.enter_async_context(
            throw_away_flock(
                directory,
                dict.fromkeys(names, MACHINES),
                ways={pair: f"{LOOPBACK}:{relay.port}" for pair, relay in ways.items()},
                minute_seconds=minute_seconds,
                reclaim_minutes=reclaim_minutes,
                is_fixed=is_fixed,
            )
        )
        yield FlockPools({name: flock.pools[name] for name in names}, ways)


def _server_of(directory: Path, name: str) -> tuple[str, int]:
    """Returns where the server of a pool listens for others. Raises NotFound while it does not."""
    return parse_address(server_address(directory, name))
