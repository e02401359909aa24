"""A sandbox: the scratch directory and the output files that tasks use one after the other.

A sandbox holds no descriptor. Every descriptor of this process is copied by fork and closed by
exec, for each task again: 1,000 open files cost a task 0.08 ms, opening two of them by name in
the child 0.02 ms.

A task can replace all of it by something else. So each directory is looked up in an open one
without following links, and a task is started in a scratch directory, and that is emptied, only if
it is the very one that was made here: its device and inode are remembered.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import stat
import time
from collections.abc import Callable, Container, Iterator

from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.worker.own_files import (
    NO_LINKS,
    OwnDirectory,
    is_own_file,
    open_directory,
    open_file,
)
from kestrelctl.worker.run.output import STREAMS, KeptOutputs

log = logging.getLogger(__name__)

_EMPTY_NS = 1_000_000_000
"""Modification time given to an emptied scratch directory: any other says that something was
put into it. (Comparing with the time of emptying would miss what happened within the same tick
of the clock.)"""

_TICK_NS = 20_000_000
"""The file system's clock moves at least this often. A task can set the modification time back,
but not the time of that change (st_ctime), so it betrays the task, unless the directory was
emptied within the same tick."""

_FEW_FILES = 64
_NOWHERE = (0, 0, 0, 0)


class Sandbox:
    """A directory in which one task at a time runs.

    Args:
        parent: the directory that it is in.
        names: names that are free there.
        discard: removes an entry of an open directory by its name, without delaying the caller.
            OSError if it cannot be moved.
        reuses_files: whether a task gets the same directory and output files as the one before,
            emptied, which is faster. A task may have passed descriptors of them to others that
            still run (unix(7), SCM_RIGHTS), and those lead past any isolation.
    """

    __slots__ = (
        "_discard",
        "_emptied",
        "_entered_ns",
        "_name",
        "_names",
        "_parent",
        "_reuses_files",
        "_spoiled",
    )

    def __init__(
        self,
        parent: OwnDirectory,
        names: Iterator[str],
        discard: Callable[[str, int], None],
        *,
        reuses_files: bool = True,
    ) -> None:
        self._parent = parent
        self._names = names
        self._name = next(names)
        self._discard = discard
        self._reuses_files = reuses_files
        self._emptied = _NOWHERE
        self._entered_ns = 0
        self._spoiled = False

    @property
    def name(self) -> str:
        """The name of its directory."""
        return self._name

    @property
    def device(self) -> int:
        """The device of the scratch directory."""
        return self._emptied[0]

    @property
    def inode(self) -> int:
        """The inode of the scratch directory; 0 as long as there is none."""
        return self._emptied[1]

    @property
    def place(self) -> str:
        """The path of its directory."""
        return f"{self._parent.path}/{self._name}"

    def take_over(self, inode: int) -> bool:
        """Takes over the scratch directory of an earlier process of the worker, as it is.

        Returns:
            Whether it is still there.
        """
        try:
            state = os.stat(f"{self._name}/scratch", dir_fd=self._parent.fd, follow_symlinks=False)
        except OSError:
            return False
        if not stat.S_ISDIR(state.st_mode) or state.st_ino != inode:
            return False
        self._emptied = (state.st_dev, inode, 0, 0)
        return True

    def is_there(self) -> bool:
        """Whether the scratch directory is the one that was made here."""
        try:
            state = os.stat(f"{self._name}/scratch", dir_fd=self._parent.fd, follow_symlinks=False)
        except OSError:
            return False
        return self._is_ours(state)

    def prepare(self, *, anew: bool = False) -> None:
        """Makes sure of a scratch directory for what is to be started. OSError if there is none.

        Args:
            anew: even if there seems to be one: a task has put something else in its place.
        """
        if anew or not self.inode:
            os.close(self._make_scratch())
        self._entered_ns = time.time_ns()

    def open_scratch(self) -> int:
        """Opens the scratch directory to read what the task left. OSError if it is another now."""
        scratch = os.open(
            f"{self._name}/scratch", os.O_RDONLY | os.O_DIRECTORY | NO_LINKS, dir_fd=self._parent.fd
        )
        if not self._is_ours(os.fstat(scratch)):
            os.close(scratch)
            raise NotADirectoryError(errno.ENOTDIR, "the task replaced its scratch directory")
        return scratch

    def renew(self) -> None:
        """Starts over with another directory: a task may have made this one unusable."""
        self._spoiled = False
        self._emptied = _NOWHERE
        try:
            self._discard(self._name, self._parent.fd)
        except OSError as error:
            log.warning("sandbox %s is given up: %s", self._name, error)
            self._name = next(self._names)

    def sizes(self) -> tuple[int, int]:
        """Bytes written to stdout and stderr so far."""
        stdout, stderr = STREAMS
        return self._size(stdout), self._size(stderr)

    def _size(self, stream: str) -> int:
        try:
            state = os.stat(f"{self._name}/{stream}", dir_fd=self._parent.fd, follow_symlinks=False)
        except OSError:  # the task removed it
            return 0
        if is_own_file(state):
            return state.st_size
        self._spoiled = True
        return 0

    def read(self, stream: str, offset: int, limit: int) -> bytes:
        """Reads part of what the task has written. OSError if the task removed it."""
        place = self._open_place()
        try:
            file = open_file(stream, os.O_RDONLY, place)
        finally:
            os.close(place)
        try:
            return os.pread(file, limit, offset)
        finally:
            os.close(file)

    def take_outputs(
        self, number: int, sizes: tuple[int, int], kept: KeptOutputs, limit_bytes: int
    ) -> list[bytes]:
        """Moves outputs away that are longer than their tail.

        Args:
            number: of the attempt.
            sizes: of stdout and stderr.
            kept: where they go.
            limit_bytes: what is beyond this is cut off.

        Returns:
            The tails of stdout and stderr; empty where there is one that cannot be read.
        """
        tails = [b"", b""]
        for index, (stream, size) in enumerate(zip(STREAMS, sizes, strict=True)):
            if size:
                try:
                    tails[index] = self._take_output(number, stream, size, kept, limit_bytes)
                except OSError as error:
                    log.warning("attempt %d: its %s cannot be read: %s", number, stream, error)
                    self._spoiled = True
        return tails

    def _take_output(
        self, number: int, stream: str, size: int, kept: KeptOutputs, limit_bytes: int
    ) -> bytes:
        with contextlib.ExitStack() as opened:
            place = self._open_place()
            opened.callback(os.close, place)
            flags = os.O_RDWR if size > limit_bytes else os.O_RDONLY
            file = open_file(stream, flags, place)
            opened.callback(os.close, file)
            tail = os.pread(file, TAIL_BYTES, max(0, size - TAIL_BYTES))
            if size > TAIL_BYTES:
                with contextlib.suppress(OSError):  # then there is only the tail of it
                    if size > limit_bytes:
                        os.ftruncate(file, limit_bytes)
                    os.fchmod(file, 0o600)
                    kept.take(number, stream, place, min(size, limit_bytes))
            return tail

    def abandon_outputs(self) -> None:
        """Gives the next task other files: somebody may still write to these."""
        for stream in STREAMS:
            with contextlib.suppress(OSError):
                os.unlink(f"{self._name}/{stream}", dir_fd=self._parent.fd)

    def empty_scratch(self) -> None:
        """Removes what the task left in its scratch directory, or all, if it spoiled the rest."""
        if self._spoiled:
            self.renew()
        elif not self._reuses_files or not self._is_untouched():
            try:
                place = open_directory(self._name, self._parent.fd)
            except FileNotFoundError:
                return
            except OSError:
                self.renew()
                return
            try:
                if not self._take_out_few(place):
                    self._discard("scratch", place)
                    self._emptied = _NOWHERE
                elif not self._reuses_files:
                    self._take_away(place)
            except OSError:
                self.renew()
            finally:
                os.close(place)

    def _take_away(self, place: int) -> None:
        """Removes the emptied scratch directory, which is not for the next task."""
        self._emptied = _NOWHERE
        try:
            os.rmdir("scratch", dir_fd=place)
        except FileNotFoundError:
            return
        except OSError:  # somebody put something into it
            self._discard("scratch", place)

    # ---- the scratch directory

    def _make_scratch(self) -> int:
        """Makes the scratch directory, in place of whatever is there. Returns its descriptor."""
        try:
            place = open_directory(self._name, self._parent.fd)
        except FileNotFoundError:
            self._parent.renew()
            place = self._make_place()
        except NotADirectoryError:
            self.renew()
            place = self._make_place()
        try:
            self._discard("scratch", place)
            os.mkdir("scratch", 0o700, dir_fd=place)
            scratch = open_directory("scratch", place)
        finally:
            os.close(place)
        self._mark_empty(scratch)
        return scratch

    def _make_place(self) -> int:
        os.mkdir(self._name, 0o700, dir_fd=self._parent.fd)
        return open_directory(self._name, self._parent.fd)

    def _open_place(self) -> int:
        return os.open(self._name, _PATH, dir_fd=self._parent.fd)

    def _is_ours(self, state: os.stat_result) -> bool:
        return (state.st_dev, state.st_ino) == self._emptied[:2]

    def _is_untouched(self) -> bool:
        if self._entered_ns - self._emptied[3] < _TICK_NS:
            return False
        try:
            state = os.stat(f"{self._name}/scratch", dir_fd=self._parent.fd, follow_symlinks=False)
        except OSError:
            return False
        return _marks(state) == self._emptied

    def _take_out_few(self, place: int) -> bool:
        """Empties the scratch directory if that is quick. Returns whether it is empty, or missing.

        False if it is something else, or holds a directory.
        """
        try:
            scratch = os.open("scratch", os.O_RDONLY | os.O_DIRECTORY | NO_LINKS, dir_fd=place)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            state = os.fstat(scratch)
            if not self._is_ours(state):
                return False
            few = _few(scratch)
            if not few and _marks(state) == self._emptied:
                return True
            if len(few) == _FEW_FILES:
                return False
            if state.st_mode & 0o7777 != 0o700:
                os.fchmod(scratch, 0o700)
            for name in few:
                os.unlink(name, dir_fd=scratch)
            self._mark_empty(scratch)
            return not _few(scratch)
        except OSError:
            return False  # a directory among them, or one that may not be written
        finally:
            os.close(scratch)

    def _mark_empty(self, scratch: int) -> None:
        os.utime(scratch, ns=(_EMPTY_NS, _EMPTY_NS))
        self._emptied = _marks(os.fstat(scratch))


class Sandboxes:
    """The sandboxes of an executor, of which some are free.

    Args:
        directory: they are in it, and nothing else.
        discard: as of a `Sandbox`.
        kept: names of those of an earlier process that are not free.
        reuses_files: as of a `Sandbox`.
    """

    def __init__(
        self,
        directory: OwnDirectory,
        discard: Callable[[str, int], None],
        kept: Container[str],
        *,
        reuses_files: bool,
    ) -> None:
        self._directory = directory
        self._discard = discard
        self._names = (name for name in map(str, itertools.count()) if name not in kept)
        self._reuses_files = reuses_files
        self._free: list[Sandbox] = []

    @property
    def fd(self) -> int:
        """The open directory."""
        return self._directory.fd

    def take(self) -> Sandbox:
        """Takes one for an attempt, until it is given back."""
        return self._free.pop() if self._free else self._make(self._names)

    def named(self, name: str) -> Sandbox:
        """Takes one of those that are kept."""
        return self._make(itertools.chain((name,), self._names))

    def give_back(self, sandbox: Sandbox) -> None:
        """Frees one for the next attempt."""
        self._free.append(sandbox)

    def _make(self, names: Iterator[str]) -> Sandbox:
        return Sandbox(self._directory, names, self._discard, reuses_files=self._reuses_files)


_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | NO_LINKS


#: Errors of a start that a task may have caused by what it put in the place of a directory, or in
#: that of an output: of no permission, a directory, a link, a FIFO that nobody reads.
_SPOILED = {
    errno.EACCES,
    errno.EPERM,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ELOOP,
    errno.ENXIO,
    errno.EBUSY,
    errno.EEXIST,
}


def is_spoiled(error: Exception) -> bool:
    """Whether a start may have failed because an earlier task made the sandbox unusable."""
    return isinstance(error, OSError) and error.errno in _SPOILED


def _marks(state: os.stat_result) -> tuple[int, int, int, int]:
    """Marks that differ for any other directory, and for this one if something was put into it."""
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _few(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, _FEW_FILES)]
