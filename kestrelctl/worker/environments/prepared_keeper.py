"""Has what was prepared and is not used any more removed, now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from kestrelctl.errors import KestrelError

log = logging.getLogger(__name__)

COLLECT_SECONDS = 300.0


class CollectingDriver(Protocol):
    """Makes environments of one kind."""

    async def collect(self, in_use: Collection[str]) -> list[str]:
        """See `EnvironmentDriver.collect`."""
        ...


class PreparedKeeper:
    """Has the drivers of one machine remove what is not used any more.

    Args:
        drivers: by kind.
        in_use: tells what has to stay, as `prepare` of a driver has returned it.
    """

    def __init__(
        self, drivers: Mapping[str, CollectingDriver], in_use: Callable[[], Collection[str]]
    ) -> None:
        self._drivers = drivers
        self._in_use = in_use

    async def run(self) -> None:
        """Collects now and then until it is cancelled."""
        while True:
            await self.collect()
            await asyncio.sleep(COLLECT_SECONDS)

    async def collect(self) -> None:
        """Has each driver collect once."""
        for kind, driver in self._drivers.items():
            try:
                for name in await driver.collect(self._in_use()):
                    log.info("removed what was prepared of kind %s as %s", kind, name)
            except (KestrelError, OSError) as error:
                log.warning("what is prepared of kind %s cannot be looked at: %s", kind, error)
