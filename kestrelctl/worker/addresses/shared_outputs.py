"""Writes what tasks leave to directories of this machine that its operator names for that.

Workers write as one user for all owners. So each owner has a directory of his own there, with his
address as its name, and nobody writes to another's. Directories are opened name by name, and no
link is followed below those that the operator has named (open(2), O_NOFOLLOW). A file gets its name
when all of it is there; it replaces what had the name, and is never written through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from kestrelctl.core.model.files.addresses import path_of, problem_with_address
from kestrelctl.errors import NO_SPACE, KestrelError, NoSpace, NotAllowed, Unreachable, UsageError
from kestrelctl.files.archive import ArchiveMember, members
from kestrelctl.worker.files.output_archive import Stopped
from kestrelctl.worker.own_files import NO_LINKS

MOST_AT_ONCE = 4
#: Opens also a directory that may be entered and not be listed (open(2), O_PATH).
_PASS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
#: Something else is there: another try would end the same.
_IN_THE_WAY = (errno.ENOTDIR, errno.ELOOP, errno.EISDIR)


class SharedOutputs:
    """Writes below the directories that a worker may write to, in threads of its own.

    Args:
        directories: those below which the directories of owners are, absolute.
        own_user: only the worker's user has the pool, so all that he may write may be written.
    """

    def __init__(self, directories: Sequence[Path] = (), *, own_user: bool = False) -> None:
        self._directories = directories
        self._own_user = own_user
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "shared-outputs")

    async def put(self, archive: Path, address: str, owner: str) -> None:
        """Writes the files and links of an archive below a directory; files are on the disk then.

        A cancel ends this at once, also where the file system does not answer: the thread gives up
        before its next piece.

        Args:
            archive: of one task, as `OutputArchive` writes it.
            address: of the directory, as `core.model.files.outputs.place_of` makes it.
            owner: of the job.

        Raises:
            NotAllowed: this worker does not write there for him.
            UsageError: something else is in the way.
            NoSpace: there is no room.
            Unreachable: it does not work now.
        """
        stopped = threading.Event()
        writing = asyncio.get_running_loop().run_in_executor(
            self._threads, self._write, archive, address, owner, stopped.is_set
        )
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            stopped.set()
            writing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise

    def close(self) -> None:
        """Takes no more work."""
        self._threads.shutdown(wait=False)

    def _write(self, archive: Path, address: str, owner: str, stopped: Callable[[], bool]) -> None:
        problem = problem_with_address(address)
        if problem:  # the manager has looked; what it sends decides what this machine writes
            raise UsageError(problem)
        with _telling(address), contextlib.ExitStack() as opened:
            root, names = self._start(address, owner)
            top = os.open(root, _PASS)
            opened.callback(os.close, top)
            top = _enter(top, names, opened)
            source = opened.enter_context(archive.open("rb"))
            for member in members(source):
                if member.is_file:
                    _put(top, member, source, stopped)
                elif member.is_link:
                    _put_link(top, member)

    def _start(self, address: str, owner: str) -> tuple[bytes, list[bytes]]:
        """Returns a directory that must be there, and the names on the way below it."""
        path = path_of(address)
        if self._own_user:
            above, _, last = path.rpartition(b"/")
            return b"/", [*_names(os.path.realpath(above or b"/")), last]
        names = _names(path)
        for directory in self._directories:
            root = os.fsencode(directory)
            within = _names(root)
            below = names[len(within) :]
            if names[: len(within)] == within and below[:1] == [os.fsencode(owner)]:
                return root, below
        own = ", ".join(f"file://{directory}/{owner}/" for directory in self._directories)
        raise NotAllowed(
            f"this worker does not write to {address}",
            cause=f"files of {owner} go below {own}"
            if own
            else "its operator has named no directory",
        )


def _names(path: bytes) -> list[bytes]:
    return [name for name in path.split(b"/") if name]


def _enter(directory: int, names: Sequence[bytes], opened: contextlib.ExitStack) -> int:
    """Opens a directory below an open one, by way of directories only; makes missing ones."""
    for name in names:
        try:
            directory = os.open(name, _PASS | NO_LINKS, dir_fd=directory)
        except FileNotFoundError:
            with contextlib.suppress(FileExistsError):  # another task has made it meanwhile
                os.mkdir(name, dir_fd=directory)
            directory = os.open(name, _PASS | NO_LINKS, dir_fd=directory)
        opened.callback(os.close, directory)
    return directory


def _put(top: int, member: ArchiveMember, source: BinaryIO, stopped: Callable[[], bool]) -> None:
    """Writes one file beside its place, and then puts it there."""
    names = os.fsencode(member.name).split(b"/")

    def check() -> None:
        if stopped():
            raise Stopped

    with contextlib.ExitStack() as opened:
        parent = _enter(top, names[:-1], opened)
        part = f".kestrel-{token_hex(8)}"
        mode = 0o777 if member.mode & stat.S_IXUSR else 0o666
        made = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINKS, mode, dir_fd=parent)
        try:
            with open(made, "wb") as draft:
                member.copy_to(source, draft, check)
                draft.flush()
                os.fsync(made)  # some file systems tell only now that there is no room
            check()
            os.rename(part, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=parent)
            raise


def _put_link(top: int, member: ArchiveMember) -> None:
    """Makes one link beside its place, and then puts it there. It leads nowhere but below `top`."""
    *above, name = os.fsencode(member.name).split(b"/")
    with contextlib.ExitStack() as opened:
        parent = _enter(top, above, opened)
        part = f".kestrel-{token_hex(8)}"
        os.symlink(member.link, part, dir_fd=parent)
        try:
            os.rename(part, name, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            with contextlib.suppress(FileNotFoundError):  # it has its name
                os.unlink(part, dir_fd=parent)


@contextlib.contextmanager
def _telling(address: str) -> Iterator[None]:
    """Turns errors into ours, by what another try could change."""
    try:
        yield
    except OSError as error:
        raise _told(error, address) from error


def _told(error: OSError, address: str) -> KestrelError:
    if error.errno in NO_SPACE:
        return NoSpace(f"no space at {address}", cause=error.strerror)
    if error.errno in _FORBIDDEN:
        return NotAllowed(f"the worker may not write to {address}", cause=error.strerror)
    if error.errno in _IN_THE_WAY:
        return UsageError(f"something else is in the way at {address}", cause=error.strerror)
    if error.errno == errno.ENAMETOOLONG:
        return UsageError(f"a name is too long at {address}", cause=error.strerror)
    return Unreachable(f"{address} cannot be written now", cause=error.strerror)
