"""The durable store, in memory, with commits that take time, fail, and can be cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from kestrel_worlds.memory_store import MemoryStore
from kestrel_worlds.simulation_clock import SimulationClock
from kestrelctl.errors import StoreFull
from kestrelctl.store.port import StoreRecord


class SimulatedStore(MemoryStore):
    """A `store.port.CoreStore`: its tables outlive the manager that writes them.

    Args:
        commit_seconds: bounds of a commit's duration.
        on_committed: called with the records of each commit.

    Attributes:
        slowness: how many times longer commits take.
    """

    def __init__(
        self,
        clock: SimulationClock,
        random: Random,
        commit_seconds: tuple[float, float],
        on_committed: Callable[[Sequence[StoreRecord]], None],
    ) -> None:
        super().__init__()
        self.slowness = 1.0
        self._clock = clock
        self._random = random
        self._commit_seconds = commit_seconds
        self._on_committed = on_committed
        self._under_way: tuple[Sequence[StoreRecord], asyncio.Future[None]] | None = None

    async def commit(
        self, records: Sequence[StoreRecord], on_delay: Callable[[str], None] | None = None
    ) -> None:
        assert self._under_way is None, "two commits at once"
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way = (list(records), future)
        seconds = self._random.uniform(*self._commit_seconds) * self.slowness
        self._clock.after(seconds, self._finish, future)
        try:
            await future
        except asyncio.CancelledError:
            self.crash()
            raise

    def _finish(self, future: asyncio.Future[None]) -> None:
        if self._under_way is None or self._under_way[1] is not future or future.cancelled():
            return
        records, self._under_way = self._under_way[0], None
        if self.full:
            future.set_exception(StoreFull(cause="a disk that was told to be full"))
        else:
            self._keep(records)
            future.set_result(None)

    def crash(self) -> None:
        """Lets the process that writes die: of the commit under way all or nothing stays."""
        if self._under_way is not None:
            records, self._under_way = self._under_way[0], None
            if not self.full and self._random.random() < 0.5:
                self._keep(records)

    def _keep(self, records: Sequence[StoreRecord]) -> None:
        super()._keep(records)
        self._on_committed(records)
