"""What was prepared for environments and is not used any more goes now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from neighbourskit import on_its_own_clock

from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.prepared_keeper import COLLECT_SECONDS, PreparedKeeper


class Driver:
    """Notes what it is told to keep."""

    def __init__(self, problem: str = "") -> None:
        self.kept: list[Collection[str]] = []
        self._problem = problem

    async def collect(self, in_use: Collection[str]) -> list[str]:
        self.kept.append(in_use)
        if self._problem:
            raise KestrelError(self._problem)
        return ["digest"]


@on_its_own_clock
async def test_each_kind_is_looked_at_again_and_again_with_what_is_used_then() -> None:
    in_use: list[str] = []
    broken, driver = Driver("the process that makes environments has ended"), Driver()
    keeper = PreparedKeeper({"podman": broken, "venv": driver}, lambda: tuple(in_use))
    running = asyncio.ensure_future(keeper.run())
    await asyncio.sleep(1)
    in_use.append("/made/a")
    await asyncio.sleep(COLLECT_SECONDS)
    running.cancel()
    assert broken.kept == driver.kept == [(), ("/made/a",)]
