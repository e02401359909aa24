"""Several pools of one flock for the length of a `with`, and all that they share beside them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from kestrelctl.core.model.neighbour import RECLAIM_MINUTES
from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.flock_addresses import write_address
from kestrelctl.local.flock_membership import flock_domain, membership, own_addresses_of
from kestrelctl.local.pool_state import PoolState


class ThrowAwayFlock:
    """Pools that start and stop one by one.

    Args:
        directory: of the flock, for its authority, its addresses and its pools.
        minute_seconds: unit of the intervals in which pools tell each other things.
        reclaim_minutes: for how many of these units tasks of others may go on while own ones wait.
        fixed: names of all pools, if they do not find each other.
        environments: files with classes of environments, which each pool starts as it needs them.

    Attributes:
        pools: those that run, by name.
    """

    def __init__(
        self,
        directory: Path,
        minute_seconds: float = 60.0,
        *,
        executor: str = "process",
        isolation: str = "plain",
        metrics: bool = False,
        reclaim_minutes: float = RECLAIM_MINUTES,
        fixed: tuple[str, ...] = (),
        environments: tuple[Path, ...] = (),
    ) -> None:
        self._directory = directory
        self._reclaim_minutes = reclaim_minutes
        self._fixed = tuple(flock_domain(name) for name in fixed)
        self._minute_seconds = minute_seconds
        self._executor = executor
        self._isolation = isolation
        self._metrics = metrics
        self._environments = environments
        self._running: dict[str, contextlib.AsyncExitStack] = {}
        self.pools: dict[str, PoolState] = {}

    async def start(self, name: str, workers: int, through: str) -> PoolState:
        """Starts a pool; returns when it can run tasks.

        Args:
            name: its domain is NAME.kestrel.localhost.
            workers: how many, of one processor each.
            through: name of the pool to join through; `name` for the first of a flock.

        Raises:
            KestrelError: it did not come up.
        """
        directory, domain = self._directory / name, flock_domain(name)
        directory.mkdir(mode=0o700, exist_ok=True)
        federation = membership(
            self._directory,
            directory,
            domain,
            flock_domain(through),
            self._minute_seconds,
            reclaim_minutes=self._reclaim_minutes,
            fixed=self._fixed,
        )
        async with contextlib.AsyncExitStack() as stack:
            self.pools[name] = await stack.enter_async_context(
                throw_away_pool(
                    workers,
                    self._executor,
                    self._isolation,
                    metrics=self._metrics,
                    directory=directory,
                    domain=domain,
                    federation=federation,
                    environments=self._environments,
                )
            )
            self._running[name] = stack.pop_all()
        return self.pools[name]

    async def stop(self, name: str) -> None:
        """Stops a pool, and deletes what it has stored."""
        self.pools.pop(name, None)
        await self._running.pop(name).aclose()

    async def stop_all(self) -> None:
        """Stops those that run, the latest first."""
        for name in reversed(list(self._running)):
            await self.stop(name)

    def send_round(self, name: str, to: str, address: str) -> None:
        """Has the server of one pool look for that of another elsewhere, from its next stream on.

        Args:
            name: of the pool that opens streams.
            to: name of the other.
            address: ADDRESS:PORT, for example of a program that delays what it passes on.
        """
        directory = self._directory / name
        directory.mkdir(mode=0o700, exist_ok=True)
        write_address(own_addresses_of(directory), flock_domain(to), address)


@contextlib.asynccontextmanager
async def throw_away_flock(
    directory: Path,
    workers: Mapping[str, int],
    *,
    through: Mapping[str, str] | None = None,
    ways: Mapping[tuple[str, str], str] | None = None,
    minute_seconds: float = 60.0,
    executor: str = "process",
    isolation: str = "plain",
    metrics: bool = False,
    reclaim_minutes: float = RECLAIM_MINUTES,
    is_fixed: bool = False,
    environments: tuple[Path, ...] = (),
) -> AsyncIterator[ThrowAwayFlock]:
    """A flock for the length of a `with`, whose pools end with this process at the latest.

    Args:
        directory: an empty one, for all that it keeps.
        workers: how many of one processor each pool has, by name; pools start in this order.
        through: which pool each joins through; the first one if nothing is said, and a pool that is
            told its own name is the first of a flock of its own.
        ways: ADDRESS:PORT where the first of two pools finds the second; the server's own otherwise
            (`flock_membership.server_address` tells that, as soon as that pool runs).
        minute_seconds: unit of the intervals in which pools tell each other things.
        reclaim_minutes: for how many of these units tasks of others may go on while own ones wait.
        is_fixed: whether each pool is told of all others instead of finding them.
        environments: files with classes of environments, which each pool starts as it needs them.

    Raises:
        KestrelError: a pool did not come up.
    """
    flock = ThrowAwayFlock(
        directory,
        minute_seconds,
        executor=executor,
        isolation=isolation,
        metrics=metrics,
        reclaim_minutes=reclaim_minutes,
        fixed=tuple(workers) if is_fixed else (),
        environments=environments,
    )
    first = next(iter(workers))
    for (name, to), address in (ways or {}).items():
        flock.send_round(name, to, address)
    try:
        for name, number in workers.items():
            await flock.start(name, number, (through or {}).get(name, first))
        yield flock
    finally:
        await flock.stop_all()
