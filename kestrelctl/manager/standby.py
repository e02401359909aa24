"""Has a manager that shares its store with others stand by until it leads, and be silent after."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from kestrelctl.core.model.records import Snapshot
from kestrelctl.errors import AnotherLeads, SteppedBack
from kestrelctl.manager.service import Service
from kestrelctl.metrics.metrics_server import MetricsServer
from kestrelctl.metrics.pool_families import leadership_families
from kestrelctl.metrics.readers import Readers
from kestrelctl.store.port import Leadership, Store
from kestrelctl.xmpp.stream import NEXT_ADDRESS_SECONDS
from kestrelctl.xmpp.xmpp_session import XmppSession

log = logging.getLogger(__name__)

#: Pause between two looks whether this manager still leads.
LOOK_SECONDS = 0.2
#: A leader that has had no connection to the server for so long makes room for one that could have.
#: Longer than those that stand by need to notice that the server itself is away.
OFFLINE_SECONDS = 5.0
#: Pause between two looks whether the server could be reached, and the time that one may take.
REACH_SECONDS = 2.0


async def opened(
    store: Store, leadership: Leadership, server: tuple[str, int], told: asyncio.Future[None]
) -> Snapshot | None:
    """Opens a store as soon as this manager leads; None if it is told to stop before.

    Args:
        server: host and port of the XMPP server: a manager that cannot reach it takes nothing over.
    """
    async with _Reached(*server) as reached:
        while True:
            winning = asyncio.ensure_future(leadership.win(reached.problem))
            await asyncio.wait({winning, told}, return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                winning.cancel()
                await asyncio.wait({winning})
                return None
            await winning
            try:
                return store.open()
            except AnotherLeads as error:
                log.info("another manager was faster: %s", error)


class _Reached:
    """Looks again and again whether the server could be reached, while it is entered."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._why = ""
        self._looking: asyncio.Task[None]

    def problem(self) -> str:
        """The reason why it could not; empty if it could."""
        return self._why

    async def __aenter__(self) -> _Reached:
        await self._look()
        self._looking = asyncio.create_task(self._look_for_ever())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        await asyncio.wait({self._looking})

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(REACH_SECONDS)
            await self._look()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(REACH_SECONDS):
                _, writer = await asyncio.open_connection(
                    self._host, self._port, happy_eyeballs_delay=NEXT_ADDRESS_SECONDS
                )
        except (OSError, UnicodeError) as error:  # a name that is none for DNS
            why = str(error) or "it does not answer"
            self._why = f"the XMPP server at {self._host}:{self._port} cannot be reached: {why}"
            return
        self._why = ""
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def serving_standby_metrics(
    listening: socket.socket | None, readers: Readers
) -> AsyncIterator[None]:
    """Serves the metrics of a manager that stands by.

    Args:
        listening: the socket of those of a manager that leads, which is left as it is; None for
            nowhere.
    """
    if listening is None:
        yield
        return
    server = MetricsServer(
        "kestrel_", lambda: leadership_families((), leads=False), lambda: "it stands by", readers
    )
    await server.start(listening.dup())
    try:
        yield
    finally:
        await server.stop()


async def keep_leading(
    leadership: Leadership | None, service: Service, session: XmppSession
) -> None:
    """Ends the manager when another one leads, or should; and its connection while nobody knows
    who does.
    """
    loop = asyncio.get_running_loop()
    online_at = loop.time()
    while leadership is not None:
        await asyncio.sleep(LOOK_SECONDS)
        if session.online:
            online_at = loop.time()
        if leadership.is_lost:
            why = "this one could not renew its lease in time"
            service.give_up(SteppedBack("another manager leads the pool", cause=why))
            return
        if not leadership.is_held:
            session.fall_silent()
        elif loop.time() - online_at > OFFLINE_SECONDS and any(
            each.could_lead for each in leadership.managers()
        ):
            why = f"it has been without the XMPP server for {OFFLINE_SECONDS:g} s"
            service.give_up(SteppedBack("another manager can lead the pool", cause=why))
            return
