"""Servers of tests: no connection outlives the test that accepted it.

One that does is found by a later test, when its memory is collected.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

LOOPBACK = "127.0.0.1"


@contextlib.asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], port: int = 0
) -> AsyncIterator[int]:
    """Accepts connections for the time of a `with`, and ends those that are left with it.

    Args:
        serve: serves one connection, which is cut when it returns.
        port: 0 for any that is free.

    Yields:
        The port.
    """
    serving: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            # A cancelled one would be reported as an error: only this server cancels it.
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await serve(reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            serving.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(accept, LOOPBACK, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        left = list(serving)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await server.wait_closed()
