"""Stores what tasks leave, or writes it to addresses, beside all else that the worker does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol, TypeVar

from kestrelctl.core.model.end_reason import EndKind, ReasonText
from kestrelctl.core.model.files.outputs import OutputGlobs
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.pacing.backoff import pause_seconds
from kestrelctl.errors import NO_SPACE, KestrelError, NotAllowed, NotFound, UsageError
from kestrelctl.worker.addresses.shared_outputs import SharedOutputs
from kestrelctl.worker.files.output_archive import Marks, OutputArchive, OutputsRefused, Stopped
from kestrelctl.worker.own_files import OwnDirectory, make_file

log = logging.getLogger(__name__)

#: The default limit of the outputs of one task.
DEFAULT_LIMIT_BYTES = 4 << 30
#: The most archives that are made and sent at a time: each may take as much disk as the limit.
MOST_AT_ONCE = 4
#: How long an upload that fails, or a file that cannot be written to an address, is tried again.
#: The time for which the XMPP server is away does not count: as every worker then, this one goes
#: on, and reports later.
GIVE_UP_SECONDS = 600.0
LONGEST_PAUSE_SECONDS = 30.0

#: (name, where it points) of each link that a task has found in its scratch directory.
Inputs = Sequence[tuple[str, str]]

T = TypeVar("T")


class Uploader(Protocol):
    """Takes files: `files.share.FileShare`."""

    async def put(self, path: Path) -> StoredFile:
        """Stores a file. KestrelError if that cannot be done."""
        ...


class Packed(NamedTuple):
    """The number of files that a task has left, and a remark.

    Attributes:
        files: how many files and links.
        left_out: a remark on what is not among them though a glob names it; empty if all is.
    """

    files: int
    left_out: ReasonText


class Left(NamedTuple):
    """The same, stored as one archive.

    Attributes:
        stored: where that is.
    """

    files: int
    left_out: ReasonText
    stored: StoredFile


class OutputStage:
    """Packs outputs in threads of its own and uploads them, a few at a time.

    Args:
        directory: for archives under way, which is emptied.
        uploader: where they go.
        is_online: whether there is a connection to the XMPP server.
        writer: writes to addresses instead; None where that is not possible.
        limit_bytes: the most of one task.
        now: seconds of a steady clock.
        sleep: pauses for so many seconds.
        random: spreads over time what many workers do.
    """

    def __init__(
        self,
        directory: Path,
        uploader: Uploader,
        *,
        is_online: Callable[[], bool],
        writer: SharedOutputs | None = None,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Random | None = None,
    ) -> None:
        self._directory = OwnDirectory(directory)
        for name in os.listdir(self._directory.fd):
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=self._directory.fd)
        self._uploader = uploader
        self._is_online = is_online
        self._writer = writer
        self._limit_bytes = limit_bytes
        self._now = now
        self._sleep = sleep
        self._random = random or Random()
        self._names = map(str, itertools.count())
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "outputs")

    async def store(
        self,
        number: int,
        scratch: int,
        globs: Sequence[str],
        *,
        inputs: Inputs = (),
        every_glob: bool = True,
    ) -> Left:
        """Stores what a task has left.

        Args:
            number: of the attempt.
            scratch: its open scratch directory.
            globs: of the job.
            inputs: links that it has found there, and where they point: these are not its own.
            every_glob: whether each of them must name a file, and not only one.

        Raises:
            OutputsRefused: they are not stored, and why.
        """
        packed, stored = await self._pass_on(
            number, scratch, globs, self._uploader.put, inputs, every_glob=every_glob
        )
        return Left(*packed, stored)

    async def write(
        self,
        number: int,
        scratch: int,
        globs: Sequence[str],
        address: str,
        owner: str,
        *,
        inputs: Inputs = (),
    ) -> Packed:
        """Writes what a task has left to an address.

        It is packed first, too: a further try writes the same as the first.

        Args:
            number, scratch, globs, inputs: as for `store`.
            owner: of the job.

        Raises:
            OutputsRefused: they are not written, or not all, and why.
        """
        writer = self._writer
        if writer is None:
            raise OutputsRefused(EndKind.OUTPUTS_FAILED, "this worker writes to no addresses")
        packed, _ = await self._pass_on(
            number, scratch, globs, lambda path: writer.put(path, address, owner), inputs
        )
        return packed

    async def _pass_on(
        self,
        number: int,
        scratch: int,
        globs: Sequence[str],
        put: Callable[[Path], Awaitable[T]],
        inputs: Inputs,
        *,
        every_glob: bool = True,
    ) -> tuple[Packed, T]:
        async with self._places:
            name = f"{next(self._names)}.tar"  # several of one attempt may be under way
            try:
                packed = await self._pack(name, scratch, globs, inputs, every_glob)
                return packed, await self._send(number, self._directory.path / name, put)
            except OSError as error:
                full = error.errno in NO_SPACE
                why = "no room for the archive on the worker's disk" if full else error.strerror
                raise OutputsRefused(EndKind.OUTPUTS_FAILED, f"{why}") from error
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=self._directory.fd)

    def close(self) -> None:
        """Gives everything back; nothing is under way any more."""
        self._threads.shutdown()
        if self._writer is not None:
            self._writer.close()
        self._directory.close()

    async def look(self, scratch: int, globs: Sequence[str]) -> Marks:
        """Returns marks that tell the files that globs name now from those of another moment; empty
        if there are none. OSError, OutputsRefused.
        """
        archive = OutputArchive(scratch, OutputGlobs(globs), self._limit_bytes, lambda: False)
        return await asyncio.get_running_loop().run_in_executor(self._threads, archive.marks)

    async def _pack(
        self, name: str, scratch: int, globs: Sequence[str], inputs: Inputs, every_glob: bool
    ) -> Packed:
        """Writes the archive. The writing has ended when this returns, also by a cancel."""
        stopped = threading.Event()
        packing = asyncio.get_running_loop().run_in_executor(
            self._threads,
            self._write,
            name,
            scratch,
            OutputGlobs(globs),
            inputs,
            every_glob,
            stopped.is_set,
        )
        try:
            return await asyncio.shield(packing)
        except asyncio.CancelledError:
            stopped.set()
            with contextlib.suppress(OSError, OutputsRefused, Stopped):
                await packing
            raise

    def _write(
        self,
        name: str,
        scratch: int,
        globs: OutputGlobs,
        inputs: Inputs,
        every_glob: bool,
        stopped: Callable[[], bool],
    ) -> Packed:
        self._directory.renew()
        target = make_file(name, os.O_WRONLY | os.O_TRUNC, self._directory.fd)
        with open(target, "wb") as file:
            archive = OutputArchive(scratch, globs, self._limit_bytes, stopped, dict(inputs))
            files = archive.write(file, every_glob=every_glob)
            return Packed(files, archive.left_out)

    async def _send(self, number: int, path: Path, put: Callable[[Path], Awaitable[T]]) -> T:
        """Has an archive taken, again after a pause if that fails."""
        left_seconds = GIVE_UP_SECONDS
        failures = 0
        while True:
            began = self._now()
            try:
                return await put(path)
            except (NotAllowed, NotFound, UsageError) as error:  # another try would end the same
                raise _failed(error) from error
            except KestrelError as error:
                failures += 1
                pause = pause_seconds(failures, self._random.random(), LONGEST_PAUSE_SECONDS)
                if self._is_online():
                    left_seconds -= self._now() - began + pause
                if left_seconds <= 0:
                    raise _failed(error) from error
                log.warning("the outputs of attempt %d are sent again: %s", number, error)
            await self._sleep(pause)


def _failed(error: KestrelError) -> OutputsRefused:
    cause = f": {error.cause}" if error.cause else ""
    return OutputsRefused(EndKind.OUTPUTS_FAILED, f"{error.message}{cause}")
