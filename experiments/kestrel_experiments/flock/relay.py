"""A TCP relay that delays what it carries, as a long way between two servers does."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable

from kestrelctl.errors import KestrelError
from kestrelctl.xmpp.prosody import LOOPBACK

#: The most that is read at once.
_PIECE_BYTES = 64 * 1024
#: The most that one direction of a connection holds. At 100 ms that lets 80 MB/s through, so the
#: delay itself slows down nobody; who sends more is kept waiting, as by any full pipe.
MOST_HELD_BYTES = 8 * 1024 * 1024


class DelayLine:
    """The pieces on their way in one direction, in their order, each due some time after it came.

    Args:
        delay_seconds: time from `put` until a piece is due.
        most_held_bytes: from this on there is no room; a piece that is put nevertheless is held, so
            at most one more piece is held.
    """

    def __init__(self, delay_seconds: float, most_held_bytes: int = MOST_HELD_BYTES) -> None:
        self._delay_seconds = delay_seconds
        self._most_held_bytes = most_held_bytes
        self._pieces: deque[tuple[float, bytes]] = deque()
        self.held_bytes = 0

    @property
    def has_room(self) -> bool:
        return self.held_bytes < self._most_held_bytes

    @property
    def next_due(self) -> float | None:
        """The time when the first piece is due; None while nothing is on its way."""
        return self._pieces[0][0] if self._pieces else None

    def put(self, piece: bytes, now: float) -> None:
        """Sends a piece on its way."""
        self._pieces.append((now + self._delay_seconds, piece))
        self.held_bytes += len(piece)

    def take_due(self, now: float) -> bytes:
        """Takes out all that has arrived by now, in order."""
        arrived = []
        while self._pieces and self._pieces[0][0] <= now:
            arrived.append(self._pieces.popleft()[1])
        found = b"".join(arrived)
        self.held_bytes -= len(found)
        return found


class Relay:
    """Takes connections on a port and carries them to another place, with a delay each way.

    When one side stops sending, the other side sees the end after all has arrived. While the relay
    is cut, its connections are reset, and so is each new one.

    Args:
        find: tells where the other side listens; called for each connection, as it may not listen
            yet.
        delay_seconds: delay of each direction.
        most_held_bytes: limit for each direction of a connection.
    """

    def __init__(
        self,
        find: Callable[[], tuple[str, int]],
        delay_seconds: float,
        most_held_bytes: int = MOST_HELD_BYTES,
    ) -> None:
        self._find = find
        self._delay_seconds = delay_seconds
        self._most_held_bytes = most_held_bytes
        self._connections: dict[asyncio.Task[None], set[asyncio.StreamWriter]] = {}
        self._is_cut = False
        self.port = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Relay]:
        """Listens on a port of its own for the length of a `with`."""
        server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            carrying = list(self._connections)
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)

    def cut(self) -> None:
        """Resets all connections, and those that come until `mend`."""
        self._is_cut = True
        for writers in self._connections.values():
            for writer in writers:
                writer.transport.abort()

    def mend(self) -> None:
        """Takes connections again."""
        self._is_cut = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        writers = self._connections[task] = {writer}
        try:
            if not self._is_cut:
                far_reader, far_writer = await asyncio.open_connection(*self._find())
                writers.add(far_writer)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._carry(reader, far_writer))
                    both.create_task(self._carry(far_reader, writer))
        except* (OSError, KestrelError):  # one side is gone, so the other one goes, too
            pass
        finally:
            for each in writers:
                each.transport.abort()
            del self._connections[task]

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries one direction to its end.

        Raises:
            OSError: a side is gone.
        """
        line = DelayLine(self._delay_seconds, self._most_held_bytes)
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as halves:
            reading = halves.create_task(_read(reader, line, changed))
            halves.create_task(_write(writer, line, changed, reading))


async def _read(reader: asyncio.StreamReader, line: DelayLine, changed: asyncio.Event) -> None:
    clock = asyncio.get_running_loop().time
    while piece := await reader.read(_PIECE_BYTES):
        line.put(piece, clock())
        changed.set()
        while not line.has_room:
            changed.clear()
            await changed.wait()
    changed.set()


async def _write(
    writer: asyncio.StreamWriter,
    line: DelayLine,
    changed: asyncio.Event,
    reading: asyncio.Task[None],
) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due = line.next_due
        if due is not None:
            await asyncio.sleep(max(0.0, due - clock()))
            writer.write(line.take_due(clock()))
            changed.set()
            await writer.drain()
        elif reading.done():
            writer.write_eof()
            return
        else:
            changed.clear()
            await changed.wait()
