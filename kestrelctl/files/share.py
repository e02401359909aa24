"""The pool's file share, seen from outside: files go there in pieces and come back checked.

Each piece is an upload of its own (XEP-0363): what is cut off is sent again from the start of its
piece, and read on from where it was. Threads do the work: reading, hashing and sockets would
otherwise hold up the event loop of a daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import random
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Protocol, TypeVar

from kestrelctl.core.model.files.stored_file import Piece, StoredFile, problem_with_stored_file
from kestrelctl.core.pacing.backoff import pause_seconds
from kestrelctl.errors import (
    NO_SPACE,
    FileChanged,
    FileDamaged,
    FileExpired,
    KestrelError,
    NoSpace,
    TimedOut,
    Unreachable,
)
from kestrelctl.files.connection import CHUNK_BYTES, Line, LineCut
from kestrelctl.protocol.upload_slots import PieceTooLarge, Slot

#: How much goes into one upload: what a cut costs at most, and how seldom a place is asked for.
PIECE_BYTES = 32 * 1024 * 1024
#: The most transfers of one `FileShare`; more wait.
MOST_AT_ONCE = 4
#: A connection that nobody uses is closed after so long, before Prosody does it.
IDLE_SECONDS = 4.0
#: The most tries in a row without a byte in between that came through.
MOST_TRIES = 8
LONGEST_PAUSE_SECONDS = 5.0
#: The name in the addresses of uploads: nobody else learns the name of a file.
_NAME = "piece"

_T = TypeVar("_T")


class Slots(Protocol):
    """A source of places to upload to, such as `UserConnection.request_slot`."""

    async def __call__(self, size_bytes: int, filename: str) -> Slot:
        """A new place for so many bytes."""
        ...


class FileShare:
    """Puts files into the share and gets them from there.

    Args:
        slots: asked once for each piece; who only gets files needs none.
        ca_file: whom to trust, as the XMPP connection does (see `xmpp.tls.context`).
        piece_bytes: the size of the pieces that files are cut into.
    """

    def __init__(
        self,
        slots: Slots | None = None,
        *,
        ca_file: Path | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._slots = slots
        self._ca_file = ca_file
        self._piece_bytes = piece_bytes
        self._idle: list[tuple[float, Line]] = []  # with the time of the last use
        self._closing: asyncio.TimerHandle | None = None
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, thread_name_prefix="file-share")

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that nobody uses now; it may be used again."""
        for _, line in self._idle:
            line.close()
        self._idle.clear()

    async def put(self, path: Path) -> StoredFile:
        """Sends a file.

        Raises:
            FileChanged: it was written to meanwhile.
            OverQuota: the share takes no more from this account now.
            NotAllowed: it takes nothing from it.
            Unreachable: the share, or the server, is away.
            KestrelError: the file cannot be read, or the share did not take it.
        """
        source = Source(path)
        line = Line(self._ca_file)
        pieces: list[Piece] = []
        try:
            sent_bytes = 0
            while sent_bytes < source.size_bytes:
                piece = await self._put_piece(source, sent_bytes, line)
                pieces.append(piece)
                sent_bytes += piece.size_bytes
            source.check_unchanged()
        finally:
            line.close()
        return StoredFile(
            sha256=source.sha256(), size_bytes=source.size_bytes, pieces=tuple(pieces)
        )

    async def get(self, stored: StoredFile, target: Path) -> None:
        """Writes a file that lies in the share; `target` is there at once and whole, or not at all.

        What was read before a failure stays beside the target, and the next call reads on.

        Raises:
            FileExpired: the share does not have it any more.
            FileDamaged: what came is not what was sent.
            NoSpace: the disk is full.
            Unreachable: the share is away.
            KestrelError: the target cannot be written, or the share does not give it.
        """
        if problem := problem_with_stored_file(stored):
            raise FileDamaged("this is no file of a file share", cause=problem)
        line = self._idle_line()
        await self._in_thread(partial(_fetch, stored, target, line), line)
        self._idle.append((asyncio.get_running_loop().time(), line))
        if self._closing is None:
            self._close_later()

    async def has(self, stored: StoredFile) -> bool:
        """Whether a file is still there, as far as its first piece tells: that goes first.

        A share that cannot be asked counts as having it: who wants it is told why it is not to be
        had.
        """
        line = Line(self._ca_file)
        return await self._in_thread(partial(_is_there, stored, line), line)

    async def _put_piece(self, source: Source, start: int, line: Line) -> Piece:
        """Sends what fits into one upload; each try has a place of its own.

        An upload that was cut off may still lie open at the server, which would mix the two.
        """
        if self._slots is None:
            raise AssertionError("who puts files needs places for them")
        failures = 0
        while True:
            size_bytes = min(self._piece_bytes, source.size_bytes - start)
            try:
                slot = await self._slots(size_bytes, _NAME)
                work = partial(source.send, start, size_bytes, slot, line)
                sha256 = await self._in_thread(work, line)
            except PieceTooLarge as error:
                if not 0 < error.most_bytes < size_bytes:
                    raise
                self._piece_bytes = error.most_bytes
            except (LineCut, TimedOut, Unreachable) as error:
                failures += 1
                if failures == MOST_TRIES:
                    raise (error.explained() if isinstance(error, LineCut) else error) from None
                await asyncio.sleep(_pause_seconds(failures))
            else:
                return Piece(sha256=sha256, size_bytes=size_bytes, url=slot.get_url)

    def _idle_line(self) -> Line:
        """A line that was just used, if there is one: connecting costs more than a small file."""
        return self._idle.pop()[1] if self._idle else Line(self._ca_file)

    def _close_later(self) -> None:
        # The reference is weak: else the loop would keep a share that nobody uses any more, and its
        # connections would be open until both are collected.
        self._closing = asyncio.get_running_loop().call_later(
            IDLE_SECONDS / 2, _close_idle_of, weakref.ref(self)
        )

    def close_idle(self) -> None:
        """Closes what nobody has used for a while; the server would, a moment later."""
        oldest = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle and self._idle[0][0] < oldest:
            self._idle.pop(0)[1].close()
        self._closing = None
        if self._idle:
            self._close_later()

    async def _in_thread(self, work: Callable[[], _T], line: Line) -> _T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except asyncio.CancelledError:
            line.cut()  # the thread ends at once instead of when it is done
            raise


def _close_idle_of(share: weakref.ref[FileShare]) -> None:
    if (found := share()) is not None:
        found.close_idle()


class Source:
    """A file that is sent, and must stay as it was when it was first looked at."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._first = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from None
        self.size_bytes = self._first.st_size
        self._whole = hashlib.sha256()

    def sha256(self) -> str:
        """The hash of all that was sent."""
        return self._whole.hexdigest()

    def check_unchanged(self) -> None:
        """Raises FileChanged if somebody wrote to it, or put another file in its place."""
        try:
            now = self._path.stat()
        except OSError as error:
            raise self._changed(error.strerror or str(error)) from None
        if _marks(now) != _marks(self._first):
            raise self._changed("its size, its time or the file itself is another than before")

    def send(self, start: int, size_bytes: int, slot: Slot, line: Line) -> str:
        """Sends a part and returns its hash; the hash of the whole goes on if it went through."""
        piece = hashlib.sha256()
        whole = piece if size_bytes == self.size_bytes else self._whole.copy()
        try:
            stream = self._path.open("rb", buffering=0)
        except FileNotFoundError as error:
            raise self._changed(error.strerror or str(error)) from None
        except OSError as error:
            raise _unreadable(self._path, error) from None
        with stream:
            if _marks(os.fstat(stream.fileno())) != _marks(self._first):
                raise self._changed("its size, its time or the file itself is another than before")
            stream.seek(start)
            buffer = memoryview(bytearray(CHUNK_BYTES))
            left_bytes = size_bytes

            def next_chunk() -> memoryview | None:
                nonlocal left_bytes
                if not left_bytes:
                    return None
                try:
                    read_bytes = stream.readinto(buffer[: min(CHUNK_BYTES, left_bytes)]) or 0
                except OSError as error:
                    raise _unreadable(self._path, error) from None
                if not read_bytes:
                    raise self._changed("it became shorter")
                left_bytes -= read_bytes
                chunk = buffer[:read_bytes]
                piece.update(chunk)
                if whole is not piece:
                    whole.update(chunk)
                return chunk

            line.put(slot, size_bytes, next_chunk)
        self._whole = whole
        return piece.hexdigest()

    def _changed(self, cause: str) -> FileChanged:
        return FileChanged(
            f"{self._path} changed while it was sent",
            cause=cause,
            hint="send it again once nothing writes to it, or send a copy",
        )


def _marks(status: os.stat_result) -> tuple[int, ...]:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _unreadable(path: Path, error: OSError) -> KestrelError:
    return KestrelError(f"{path} cannot be read", cause=error.strerror or str(error))


def _pause_seconds(failures: int) -> float:
    return pause_seconds(failures, random.random(), LONGEST_PAUSE_SECONDS)


# -- getting ---------------------------------------------------------------------------------------


def _fetch(stored: StoredFile, target: Path, line: Line) -> None:
    draft = target.with_name(_draft_name(stored, target.name))
    whole = False
    try:
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with FileIO(descriptor, "r+") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise KestrelError(
                    f"{target} is being fetched already", hint="wait for the other one"
                ) from None
            _Draft(stream, stored, line).complete()
            draft.replace(target)
            whole = True
    except OSError as error:
        raise _unwritable(target, error) from None
    except FileDamaged:
        draft.unlink(missing_ok=True)
        raise
    finally:
        if not whole:
            line.close()


class _Enough(Exception):
    """Ends a download: what came so far is all that was to be known."""


def _is_there(stored: StoredFile, line: Line) -> bool:
    def enough(_: memoryview) -> None:
        raise _Enough

    with contextlib.closing(line), contextlib.suppress(LineCut, KestrelError, _Enough):
        for piece in stored.pieces[:1]:
            try:
                line.get(piece.url, piece.size_bytes - 1, piece.size_bytes, enough)
            except (FileDamaged, FileExpired):
                return False
    return True


def _draft_name(stored: StoredFile, name: str) -> str:
    """The name of what was read so far: the same for the next call, another for another file."""
    both = hashlib.sha256(os.fsencode(name) + b"\0" + stored.sha256.encode())
    return f".{both.hexdigest()[:32]}.part"


def _unwritable(target: Path, error: OSError) -> KestrelError:
    if error.errno in NO_SPACE:
        return NoSpace(
            f"there is no space for {target}",
            cause=error.strerror,
            hint="make room on the disk; what was read so far is read no second time",
        )
    return KestrelError(f"{target} cannot be written", cause=error.strerror or str(error))


class _Draft:
    """A file that becomes whole.

    What comes is hashed as a whole; the hashes of pieces tell which are to blame where that is
    wrong.
    """

    def __init__(self, stream: FileIO, stored: StoredFile, line: Line) -> None:
        self._stream, self._stored, self._line = stream, stored, line
        self._hash = hashlib.sha256()
        self._end = 0  #: so many bytes are there and hashed
        self._buffer = memoryview(bytearray(min(CHUNK_BYTES, stored.size_bytes)))

    def complete(self) -> None:
        """Reads what is missing. Raises FileDamaged if the file cannot become whole."""
        self._hash = self._hash_of(0, self._stored.size_bytes)
        found_bytes = self._end = self._stream.tell()
        start = 0
        for piece in self._stored.pieces:
            if self._end < start + piece.size_bytes:
                self._fetch_rest(piece, start)
            start += piece.size_bytes
        self._stream.truncate(start)
        if self._hash.hexdigest() == self._stored.sha256:
            return
        blamed = self._wrong_pieces()
        if not blamed:
            raise _damaged("the hash of the whole is another than that of what was sent")
        if not found_bytes:
            raise _damaged("the hash of a piece is another than that of what was sent")
        # What lay there may have been wrong, for example after a crash of the machine.
        for start, piece in blamed:
            self._end = start
            self._fetch_rest(piece, start)
        if self._hash_of(0, self._stored.size_bytes).hexdigest() != self._stored.sha256:
            raise _damaged("the hash is another than that of what was sent")

    def _fetch_rest(self, piece: Piece, start: int) -> None:
        self._stream.seek(self._end)
        end, failures = start + piece.size_bytes, 0
        while self._end < end:
            before = self._end
            try:
                self._line.get(piece.url, self._end - start, piece.size_bytes, self._add)
            except LineCut as error:
                failures = 1 if self._end > before else failures + 1
                if failures == MOST_TRIES:
                    raise error.explained() from None
                self._line.pause(_pause_seconds(failures))

    def _add(self, chunk: memoryview) -> None:
        written_bytes = 0
        while written_bytes < len(chunk):
            written_bytes += self._stream.write(chunk[written_bytes:])
        self._hash.update(chunk)
        self._end += len(chunk)

    def _wrong_pieces(self) -> list[tuple[int, Piece]]:
        wrong, start = [], 0
        for piece in self._stored.pieces:
            if self._hash_of(start, piece.size_bytes).hexdigest() != piece.sha256:
                wrong.append((start, piece))
            start += piece.size_bytes
        return wrong

    def _hash_of(self, start: int, size_bytes: int) -> hashlib._Hash:
        """The hash of what is there of a part."""
        found = hashlib.sha256()
        self._stream.seek(start)
        while size_bytes:
            read_bytes = self._stream.readinto(self._buffer[:size_bytes])
            if not read_bytes:
                break
            found.update(self._buffer[:read_bytes])
            size_bytes -= read_bytes
        return found


def _damaged(cause: str) -> FileDamaged:
    return FileDamaged(
        "a file came damaged from the file share",
        cause=cause,
        hint="whoever stored it must send it again",
    )
