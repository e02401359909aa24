"""A stream with an XMPP server on the event loop: that of managers, workers and programs."""

from __future__ import annotations

import asyncio
import ssl
from xml.etree.ElementTree import Element

from kestrelctl.xmpp.stream import NEXT_ADDRESS_SECONDS, StanzaStream, StreamListener

_CLOSE_SECONDS = 1.0


class XmppStream(StanzaStream, asyncio.Protocol):
    """One connection.

    Args:
        listener: is told what comes, from `listen` on.
    """

    def __init__(self, listener: StreamListener) -> None:
        super().__init__(listener)
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._wanted: asyncio.Future[None] | None = None  # while `read` waits
        self._closed: asyncio.Future[None] = self._loop.create_future()

    async def connect(
        self, host: str, port: int, context: ssl.SSLContext | None = None, domain: str = ""
    ) -> None:
        name = domain if context is not None else None
        await self._loop.create_connection(
            lambda: self,
            host,
            port,
            ssl=context,
            server_hostname=name,
            happy_eyeballs_delay=NEXT_ADDRESS_SECONDS,
        )

    async def read(self) -> Element:
        while not self._early:
            self._wanted = self._loop.create_future()
            await self._wanted
        found = self._early.popleft()
        if isinstance(found, Exception):
            raise found
        return found

    def _keep(self, found: Element | Exception) -> None:
        super()._keep(found)
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def encrypt(self, context: ssl.SSLContext, domain: str) -> None:
        await self._refuse_early()
        assert self.transport is not None
        transport = self.transport
        self.transport = await self._loop.start_tls(
            transport, self, context, server_hostname=domain
        )

    def write(self, text: str) -> None:
        if self.transport is not None:
            self.transport.write(text.encode())

    async def close(self) -> None:
        """Closes the stream, and waits a moment for the server to do so, too.

        What the server says meanwhile is for nobody: whoever would take it is being closed as well.
        """
        self._hear_no_more()
        if self.transport is None:
            return
        self.write("</stream:stream>")
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.shield(self._closed)
        except TimeoutError:
            pass
        self.abort()

    def abort(self) -> None:
        self._hear_no_more()
        self._hang_up()
        self.transport = None

    def _hang_up(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("connection closed"))
        self.transport = None
        if not self._closed.done():
            self._closed.set_result(None)
