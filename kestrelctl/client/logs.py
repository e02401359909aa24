"""Reads the whole output of tasks, on the shortest way that there is to it.

That is the pool's file share if it is there, or a file if the pool runs on this machine. Messages
bring the rest, and all of it from elsewhere: a server takes longer for them than a disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.errors import FileDamaged, FileExpired, Unreachable
from kestrelctl.protocol.job_answers import Log
from kestrelctl.protocol.job_requests import Logs

if TYPE_CHECKING:
    import asyncio

    from kestrelctl.access.share import Share

#: The most that is in memory at a time.
_PIECE_BYTES = 1 << 20
#: The end of an output comes from the pool, which says whether anything is missing after it.
_LEFT_TO_THE_POOL_BYTES = 1 << 16
#: More of them are slower again (docs/performance.md).
_PIECES_AT_ONCE = 4


class LogReader:
    """Reads outputs of a pool's tasks.

    Args:
        open_share: opens the pool's file share; called when the first output is wanted from there.
        directory: finds the directory of the pool if it is one of this user on this machine; None
            for others.
    """

    def __init__(
        self, open_share: Callable[[], Share], directory: Callable[[], Path | None]
    ) -> None:
        self._open = open_share
        self._share: Share | None = None
        self._directory = directory

    async def whole(
        self, first: Log, stream: str, ask: Callable[[Logs], Awaitable[Log]]
    ) -> AsyncIterator[Log]:
        """Yields a task's output, from its start to its end, in pieces.

        Args:
            first: the answer to a request for its start.
            stream: `stdout` or `stderr`.
            ask: asks the pool for a further piece.

        Raises:
            KestrelError: see `stored`; or the pool refused it, or is away.
        """
        request = Logs(job=str(first.job_id), task_id=first.task_id, stream=stream)
        log = first
        if log.stored is not None:
            try:
                async for data in self.stored(log.stored):
                    yield Log(id="", data=data, size_bytes=log.size_bytes)
            except (FileExpired, FileDamaged, Unreachable) as error:  # before the first piece
                log = await ask(request)
                if log.skipped_bytes:
                    log = replace(log, why_missing=f"{error.message}; {log.why_missing}")
        yield log
        offset = log.next_offset
        if offset is not None:
            async for data in self.after_first(log.attempt, stream, log.data):
                offset += len(data)
                yield Log(id="", data=data, size_bytes=offset)
        if offset is not None:
            rest = _rest(replace(request, offset=offset), log, ask)
            async with contextlib.aclosing(rest):
                async for piece in rest:
                    yield piece

    async def stored(self, stored: StoredFile) -> AsyncIterator[bytes]:
        """Yields all of a file of the share, in order, once the whole file is here and verified.

        Raises:
            FileExpired: the share does not have it any more.
            FileDamaged: what came is not what was stored.
            Unreachable: the share is away.
            KestrelError: there is no room for it in the directory for temporary files.
        """
        import asyncio
        import tempfile  # they cost a command milliseconds, and few come here

        if self._share is None:
            self._share = self._open()
        with tempfile.TemporaryDirectory(prefix="kestrel-") as directory:
            path = Path(directory, "log")
            await self._share.get(stored, path)
            with await asyncio.to_thread(path.open, "rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                    yield piece

    async def after_first(self, attempt: int, stream: str, first: bytes) -> AsyncIterator[bytes]:
        """Yields what follows the first piece of an output, without its end, if a worker on this
        machine keeps it in a file. It yields nothing if no such file begins with that piece.

        Args:
            attempt: the number of the one that wrote it.
        """
        directory = self._directory() if attempt and first else None
        if directory is None:
            return
        import asyncio

        file = await asyncio.to_thread(open_kept, directory, f"{attempt}.{stream}", first)
        if file is None:
            return
        try:
            offset = len(first)
            end = os.fstat(file).st_size - _LEFT_TO_THE_POOL_BYTES
            while offset < end:
                wanted_bytes = min(_PIECE_BYTES, end - offset)
                data = await asyncio.to_thread(os.pread, file, wanted_bytes, offset)
                if not data:
                    return
                offset += len(data)
                yield data
        except OSError:  # the pool has the rest, or knows why not
            return
        finally:
            os.close(file)


async def _rest(
    request: Logs, first: Log, ask: Callable[[Logs], Awaitable[Log]]
) -> AsyncGenerator[Log]:
    """Yields what follows the first piece of an output, in order. Several are asked for at a time:
    worker, server, manager and client each have something to do then.

    Args:
        request: for the piece that comes next.
        ask: see `LogReader.whole`.
    """
    import asyncio

    offset = ahead = request.offset
    size_bytes = first.size_bytes
    piece_bytes = len(first.data) or size_bytes
    asked: deque[asyncio.Future[Log]] = deque()
    try:
        while True:
            while not asked or (len(asked) < _PIECES_AT_ONCE and ahead < size_bytes):
                asked.append(asyncio.ensure_future(ask(replace(request, offset=ahead))))
                ahead += piece_bytes
            log = await asked.popleft()
            yield log
            if log.next_offset is None:
                return
            offset += piece_bytes
            size_bytes = log.size_bytes
            if log.next_offset != offset:  # a piece of another size: those on their way do not fit
                await _give_up(asked)
                offset = ahead = log.next_offset
    finally:
        await _give_up(asked)


async def _give_up(asked: deque[asyncio.Future[Log]]) -> None:
    import asyncio

    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    asked.clear()


def open_kept(directory: Path, name: str, first: bytes) -> int | None:
    """Opens the file of an output that a worker keeps. No task is trusted with what lies there:
    links are not followed, and no open waits.

    Args:
        directory: that of the pool.
        name: that of the file.
        first: what it begins with.

    Returns:
        A descriptor, which the caller closes; None if there is no such file.
    """
    for path in directory.glob(f"worker-*/tasks/outputs/{name}"):
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(file).st_mode) and os.pread(file, len(first), 0) == first:
                return file
        os.close(file)
    return None
