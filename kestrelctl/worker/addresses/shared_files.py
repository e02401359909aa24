"""Files of this machine that its operator lets tasks have, below the directories that he names.

A worker reads as its own user, who may read more than the tasks of anybody should, such as its
password. So only what everybody on the machine may read is taken, and nothing outside of these
directories, wherever links lead: a path is resolved first, then opened name by name, and a link
that comes between is not followed (open(2), O_NOFOLLOW).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from kestrelctl.core.model.files.addresses import path_of
from kestrelctl.errors import KestrelError, NotAllowed, NotFound
from kestrelctl.files.tree_links import problem_with_link, with_directories
from kestrelctl.worker.addresses.addressed_files import (
    MOST_FILES,
    PIECE_BYTES,
    AddressedFile,
    too_many,
)
from kestrelctl.worker.own_files import NO_LINKS

MOST_DEPTH = 64
_READ = os.O_RDONLY | os.O_NONBLOCK | NO_LINKS
#: The names of the directories that something is in, and its own.
_Names = tuple[bytes, ...]


class SharedFiles:
    """The files at one `file:` address.

    Args:
        address: as `core.model.files.addresses` takes them.
        directories: those that may be read.
        own_user: whoever asks is the worker's own user, so all that he may read is taken.
    """

    def __init__(
        self, address: str, directories: Sequence[Path], *, own_user: bool = False
    ) -> None:
        path = path_of(address)
        self._tree = path.endswith(b"/")
        self._path = path.rstrip(b"/")
        self._shown = address
        self._directories = (Path("/"),) if own_user else directories
        self._for_all = not own_user

    async def identity(self) -> str:
        """Inode, size and times of the file, or of all that is in the directory."""
        return await asyncio.to_thread(self._identity)

    async def each(self) -> AsyncIterator[AddressedFile]:
        """The file; or those of the directory, and the links that lead to what is in it.

        Other links are not taken, nor what is no file.
        """
        with self._telling():
            top = await asyncio.to_thread(self._open)
            try:
                found = await asyncio.to_thread(self._names, top)
                for names, link in found.items():
                    if link:
                        yield AddressedFile(names, False, _nothing(), link)
                        continue
                    file = await asyncio.to_thread(self._open_below, top, names)
                    try:
                        mode = os.fstat(file).st_mode
                        self._must_be_readable(mode)
                        program = self._tree and bool(mode & stat.S_IXOTH)
                        yield AddressedFile(names, program, _pieces(file))
                    finally:
                        os.close(file)
            finally:
                os.close(top)

    async def close(self) -> None:
        """Does nothing: nothing is open."""

    def _identity(self) -> str:
        with self._telling():
            top = self._open()
            try:
                found = hashlib.sha256()
                for names, link in self._names(top).items():
                    if link:
                        found.update(b"/".join(names) + b"\0" + link + b"\0link\0")
                        continue
                    file = self._open_below(top, names)
                    try:
                        marks = _marks(os.fstat(file))
                    finally:
                        os.close(file)
                    found.update(b"/".join(names) + b"\0" + marks.encode() + b"\0")
                return found.hexdigest()
            finally:
                os.close(top)

    def _open(self) -> int:
        """Opens what is at the address, from one of the directories down."""
        real = os.path.realpath(self._path)
        for directory in self._directories:
            root = os.path.realpath(os.fsencode(directory))
            if real == root or real.startswith(root.rstrip(b"/") + b"/"):
                break
        else:
            raise NotAllowed(
                f"this worker does not share {self._shown}",
                cause="it is not below a directory that its operator has named, or a link leads out"
                if self._directories
                else "its operator has named no directory",
            )
        names = tuple(filter(None, real[len(root) :].split(b"/")))
        parent = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not names and self._tree:
            return parent
        try:
            file = self._open_below(parent, names)
        finally:
            os.close(parent)
        try:
            mode = os.fstat(file).st_mode
            if stat.S_ISDIR(mode) != self._tree:
                here = "is no directory" if self._tree else "is a directory: it ends with a slash"
                raise KestrelError(f"{self._shown} {here}")
            self._must_be_readable(mode)
        except BaseException:
            os.close(file)
            raise
        return file

    def _open_below(self, directory: int, names: Sequence[bytes]) -> int:
        """Opens what is below an open directory, by way of directories only.

        Without names it opens the same once more.
        """
        if not names:
            return os.dup(directory)
        with contextlib.ExitStack() as opened:
            parent = directory
            for name in names[:-1]:
                parent = os.open(name, _READ | os.O_DIRECTORY, dir_fd=parent)
                opened.callback(os.close, parent)
                self._must_be_entered(os.fstat(parent).st_mode)
            return os.open(names[-1], _READ, dir_fd=parent)

    def _names(self, top: int) -> dict[_Names, bytes]:
        """Lists the files and links below what is open, in one order; of a file itself, no names.

        Each comes with where it points, which is nowhere for a file.
        """
        found: dict[_Names, bytes] = {}
        if not self._tree:
            return {(): b""}
        self._walk(os.dup(top), (), found)
        named = {os.fsdecode(b"/".join(names)): names for names in found}
        links = {name: os.fsdecode(found[names]) for name, names in named.items() if found[names]}
        there = with_directories(named) if links else frozenset[str]()
        for name in links:
            if problem_with_link(name, links, there):
                del found[named[name]]
        return dict(sorted(found.items()))

    def _walk(self, directory: int, above: _Names, found: dict[_Names, bytes]) -> None:
        """Adds the files and links below a directory, which it closes."""
        try:
            if len(above) > MOST_DEPTH:
                raise KestrelError(f"more than {MOST_DEPTH} directories are in each other")
            mode = os.fstat(directory).st_mode
            self._must_be_readable(mode)
            self._must_be_entered(mode)
            for name in map(os.fsencode, os.listdir(directory)):
                mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    below = os.open(name, _READ | os.O_DIRECTORY, dir_fd=directory)
                    self._walk(below, (*above, name), found)
                elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
                    link = os.readlink(name, dir_fd=directory) if stat.S_ISLNK(mode) else b""
                    found[(*above, name)] = link
                    if len(found) > MOST_FILES:
                        raise too_many()
        finally:
            os.close(directory)

    def _must_be_readable(self, mode: int) -> None:
        """Refuses what only some users of the machine may read."""
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise OSError(0, "it is no file")
        if self._for_all and not mode & stat.S_IROTH:
            raise PermissionError(0, "others may not read it")

    def _must_be_entered(self, mode: int) -> None:
        if self._for_all and not mode & stat.S_IXOTH:
            raise PermissionError(0, "others may not enter a directory of it")

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"{self._shown} is not there") from None
        except PermissionError as error:
            raise NotAllowed(
                f"{self._shown} is not for everybody on this machine", cause=error.strerror
            ) from None
        except OSError as error:
            raise KestrelError(f"{self._shown} cannot be read", cause=error.strerror) from None


def _marks(state: os.stat_result) -> str:
    return (
        f"{state.st_dev} {state.st_ino} {state.st_mode} {state.st_size}"
        f" {state.st_mtime_ns} {state.st_ctime_ns}"
    )


async def _nothing() -> AsyncIterator[bytes]:
    nothing: tuple[bytes, ...] = ()
    for piece in nothing:
        yield piece


async def _pieces(file: int) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(os.read, file, PIECE_BYTES):
        yield piece
