"""A network between a worker and its server that fails, with or without a word, and comes back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from kestrelctl.xmpp.prosody import LOOPBACK


class Line:
    """A TCP relay that can go dead in one or both directions, or drop what it carries.

    A dead direction keeps its connections open and passes nothing on; what was sent meanwhile
    arrives when it is mended, as TCP would send it again.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._up = asyncio.Event()  #: to the server
        self._down = asyncio.Event()  #: from the server
        self._connections: set[asyncio.StreamWriter] = set()
        self._refuses = False
        self.port = 0
        self.mend()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Line]:
        server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.mend()
            self.drop()
            while self._connections:
                await asyncio.sleep(0)

    def cut(self, *, up: bool = True, down: bool = True) -> None:
        """Passes nothing on, to the server or from it."""
        if up:
            self._up.clear()
        if down:
            self._down.clear()

    def drop(self) -> None:
        """Resets all connections, and each new one."""
        self._refuses = True
        for writer in self._connections:
            writer.transport.abort()

    def mend(self) -> None:
        self._refuses = False
        self._up.set()
        self._down.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refuses:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, self._to)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._connections |= both
        try:
            await asyncio.gather(
                self._pass(reader, far_writer, self._up), self._pass(far_reader, writer, self._down)
            )
        finally:
            self._connections -= both

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whole: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await whole.wait()
                writer.write(data)
                await writer.drain()
        await whole.wait()
        writer.close()
