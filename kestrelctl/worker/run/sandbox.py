"""A sandbox: the scratch directory and the output files that tasks use one after the other.

A sandbox holds no descriptor. Every descriptor of this process is copied by fork and closed by
exec, for each task again: 1,000 open files cost a task 0.08 ms, opening two of them by name in
the child 0.02 ms.

A task can replace all of it by something else. So each directory is looked up in an open one
without following links, and a scratch directory is entered or emptied only if it is the very one
that was made here: its device and inode are remembered.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator

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

FileActions = tuple[tuple[int, ...] | tuple[int, int, str, int, int], ...]

JOINED = (os.POSIX_SPAWN_DUP2, 1, 2)
"""The last file action of a task whose standard error goes into its standard output. The file of
the former is opened before, and so emptied of what an earlier task wrote there."""


class Sandbox:
    """One task at a time runs here.

    Args:
        parent: the directory that it is in.
        names: names that are free there.
        stdin: descriptor of /dev/null.
        discard: takes what is called so in an open directory and is to vanish, and removes it
            without delaying the caller. OSError if it cannot be moved.
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
        "for_cleanup",
        "for_task",
    )

    def __init__(
        self,
        parent: OwnDirectory,
        names: Iterator[str],
        stdin: int,
        discard: Callable[[str, int], None],
        *,
        reuses_files: bool = True,
    ) -> None:
        self._parent = parent
        self._names = names
        self._name = next(names)
        self._discard = discard
        self._reuses_files = reuses_files
        self._emptied = (0, 0, 0, 0)
        self._entered_ns = 0
        self._spoiled = False
        append = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self.for_task = _file_actions(stdin, append | os.O_TRUNC)
        """File actions of posix_spawn: descriptors 0, 1 and 2 of a task. They are looked up from
        the scratch directory, which is the current one. O_NONBLOCK means nothing for a file, and
        an error where a FIFO would keep this process until somebody reads it."""
        self.for_cleanup = _file_actions(stdin, append)
        """The same for a command that goes on writing after the task."""

    @property
    def name(self) -> str:
        """What its directory is called."""
        return self._name

    @property
    def inode(self) -> int:
        """That of the scratch directory; 0 as long as there is none."""
        return self._emptied[1]

    @property
    def place(self) -> str:
        """The path of its directory."""
        return f"{self._parent.path}/{self._name}"

    def take_over(self, inode: int) -> bool:
        """Have the scratch directory of an earlier process of the worker, with what is in it.

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

    def enter(self) -> None:
        """Make the scratch directory the current one. OSError if the machine cannot."""
        try:
            scratch = os.open(f"{self._name}/scratch", _PATH, dir_fd=self._parent.fd)
        except OSError:
            scratch = self._make_scratch()
        try:
            if not self._is_ours(os.fstat(scratch)):
                os.close(scratch)
                scratch = self._make_scratch()
            os.fchdir(scratch)
        finally:
            os.close(scratch)
        self._entered_ns = time.time_ns()

    def open_scratch(self) -> int:
        """Open the scratch directory to read what the task left. OSError if that is another now."""
        scratch = os.open(
            f"{self._name}/scratch", os.O_RDONLY | os.O_DIRECTORY | NO_LINKS, dir_fd=self._parent.fd
        )
        if not self._is_ours(os.fstat(scratch)):
            os.close(scratch)
            raise NotADirectoryError(errno.ENOTDIR, "the task replaced its scratch directory")
        return scratch

    def from_elsewhere(self, actions: FileActions) -> FileActions:
        """The same file actions for a process that does not start in the scratch directory.

        They name the whole path, so whoever may replace a directory on it can lead them astray:
        only for workers all of whose tasks are their owner's.
        """
        place = self.place
        return tuple(
            (kind, descriptor, place + str(more[0]).removeprefix(".."), *more[1:])
            if kind == os.POSIX_SPAWN_OPEN and not str(more[0]).startswith("/")
            else (kind, descriptor, *more)
            for kind, descriptor, *more in actions
        )

    def renew(self) -> None:
        """Start over with another directory: a task may have made this one unusable."""
        self._spoiled = False
        self._emptied = (0, 0, 0, 0)
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
        """Part of what the task has written. OSError if the task removed it."""
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
        """Move outputs that are longer than their tail away.

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
        """Give the next task other files: somebody may still write to these."""
        for stream in STREAMS:
            with contextlib.suppress(OSError):
                os.unlink(f"{self._name}/{stream}", dir_fd=self._parent.fd)

    def empty_scratch(self) -> None:
        """Remove what the task left in its scratch directory, or all, if it spoiled the rest."""
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
                if not self._take_out_few(place) or not self._may_stay(place):
                    self._discard("scratch", place)
            except OSError:
                self.renew()
            finally:
                os.close(place)

    def _may_stay(self, place: int) -> bool:
        """Whether the emptied scratch directory is for the next task, or has gone already."""
        if self._reuses_files:
            return True
        try:
            os.rmdir("scratch", dir_fd=place)
        except FileNotFoundError:
            return True
        except OSError:  # somebody put something into it
            return False
        return True

    # ---- the scratch directory

    def _make_scratch(self) -> int:
        """Make it, in place of whatever is there. Returns its descriptor."""
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
        """Empty it if that is soon done. Returns whether it is empty, or not there.

        OSError if it is something else, or holds a directory.
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
}


def reading(path: str) -> tuple[int, int, str, int, int]:
    """The file action of a task whose standard input is the file at this absolute path."""
    return (os.POSIX_SPAWN_OPEN, 0, path, os.O_RDONLY | os.O_NOFOLLOW, 0)


def is_spoiled(error: Exception) -> bool:
    """Whether a start may have failed because an earlier task made the sandbox unusable."""
    return isinstance(error, OSError) and error.errno in _SPOILED


def _marks(state: os.stat_result) -> tuple[int, int, int, int]:
    """What tells a directory from any other, and from itself when something was put into it."""
    return state.st_dev, state.st_ino, state.st_mtime_ns, state.st_ctime_ns


def _few(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in itertools.islice(entries, _FEW_FILES)]


def _file_actions(stdin: int, flags: int) -> FileActions:
    stdout, stderr = (f"../{stream}" for stream in STREAMS)
    return (
        (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_OPEN, 1, stdout, flags, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, stderr, flags, 0o600),
    )
