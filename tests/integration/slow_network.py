"""A network on which all that a client says takes its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 16


@asynccontextmanager
async def delayed(socket: Path, seconds: float) -> AsyncIterator[int]:
    """A port of this machine that leads to a socket; yields it.

    Args:
        seconds: how much later than it was said the other end hears what a client says.
    """
    loop = asyncio.get_running_loop()
    connections: set[asyncio.Task[Any]] = set()

    async def through(client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        connections.add(own)
        server, said = await asyncio.open_unix_connection(str(socket))
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def hear() -> None:
            while data := await client.read(_CHUNK_BYTES):
                under_way.put_nowait((loop.time() + seconds, data))
            under_way.put_nowait((loop.time(), b""))

        async def pass_on() -> None:
            while True:
                due, data = await under_way.get()
                await asyncio.sleep(due - loop.time())
                if not data:
                    said.write_eof()
                    return
                said.write(data)
                await said.drain()

        async def answer() -> None:
            while data := await server.read(_CHUNK_BYTES):
                answers.write(data)
                await answers.drain()

        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await asyncio.gather(hear(), pass_on(), answer())
        finally:
            connections.discard(own)
            said.close()
            answers.close()

    listening = await asyncio.start_server(through, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for each in connections:
            each.cancel()
        await asyncio.gather(*connections)
