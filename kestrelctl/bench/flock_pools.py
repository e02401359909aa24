"""The pools of an experiment: each on its own, or in a flock with ways of some length."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable

from kestrelctl.bench.flock_relay import Relay
from kestrelctl.bench.flock_source import MACHINES
from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.pool_state import PoolState


class FlockPools:
    """Pools that run.

    Attributes:
        states: by the letters of the pools.
        ways: by the letters of two pools, what carries the streams that the first opens to the
            second; empty where they talk to each other directly.
    """

    def __init__(
        self, states: dict[str, PoolState], ways: dict[tuple[str, str], Relay] | None = None
    ) -> None:
        self.states = states
        self.ways = ways or {}

    def ways_of(self, name: str) -> list[Relay]:
        """What carries the streams from and to a pool."""
        return [relay for pair, relay in self.ways.items() if name in pair]


@contextlib.asynccontextmanager
async def lone_pools(names: Iterable[str]) -> AsyncIterator[FlockPools]:
    """Pools that know of no other, as `kestrelctl up` makes them, for the length of a `with`."""
    names = list(names)
    async with contextlib.AsyncExitStack() as stack:
        states = await asyncio.gather(
            *(stack.enter_async_context(throw_away_pool(MACHINES, metrics=False)) for _ in names)
        )
        yield FlockPools(dict(zip(names, states, strict=True)))
