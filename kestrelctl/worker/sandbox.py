"""A sandbox: the scratch directory and the output files that tasks use one after the other.

A sandbox holds no descriptor. Every descriptor of this process is copied by fork and closed by
exec, for each task again: 1,000 open files cost a task 0.08 ms, opening two of them by name in
the child 0.02 ms.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from kestrelctl.worker.output import STREAMS, TAIL_BYTES, KeptOutputs

_EMPTY_NS = 1_000_000_000
"""Modification time given to an emptied scratch directory: any other says that something was
put into it. (Comparing with the time of emptying would miss what happened within the same tick
of the clock.)"""

_FEW_FILES = 64

FileActions = tuple[tuple[int, ...] | tuple[int, int, str, int, int], ...]


class Sandbox:
    """One task at a time runs here.

    Args:
        directory: absolute; created when first used.
        stdin: descriptor of /dev/null.
        discard: takes a directory tree that is to vanish, and removes it without delaying the
            caller.
    """

    __slots__ = (
        "_directory",
        "_discard",
        "_empty",
        "_paths",
        "_scratch",
        "for_cleanup",
        "for_task",
        "place",
    )

    def __init__(self, directory: Path, stdin: int, discard: Callable[[Path], None]) -> None:
        self._directory = directory
        self.place = str(directory)
        self._paths = tuple(str(directory / stream) for stream in STREAMS)
        self._scratch = str(directory / "scratch")
        self._discard = discard
        self._empty = (0, 0)
        append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.for_task = _file_actions(stdin, self._paths, append | os.O_TRUNC)
        """File actions of posix_spawn: descriptors 0, 1 and 2 of a task."""
        self.for_cleanup = _file_actions(stdin, self._paths, append)
        """The same for a command that goes on writing after the task."""

    def enter(self) -> None:
        """Make the scratch directory the current one. OSError if the machine cannot."""
        try:
            os.chdir(self._scratch)
        except OSError:
            os.makedirs(self._scratch, 0o700, exist_ok=True)
            os.chmod(self._scratch, 0o700)
            self._mark_empty()
            os.chdir(self._scratch)

    def renew(self) -> None:
        """Start over with another directory: a task may have made this one unusable."""
        with contextlib.suppress(OSError):
            os.chmod(self._directory, 0o700)
            self._discard(self._directory)

    def sizes(self) -> tuple[int, int]:
        """Bytes written to stdout and stderr so far."""
        stdout, stderr = self._paths
        return _size(stdout), _size(stderr)

    def read(self, stream: str, offset: int, limit: int) -> bytes:
        """Part of what the task has written. OSError if the task removed it."""
        file = os.open(self._paths[STREAMS.index(stream)], os.O_RDONLY)
        try:
            return os.pread(file, limit, offset)
        finally:
            os.close(file)

    def take_outputs(
        self, number: int, sizes: tuple[int, int], kept: KeptOutputs, limit_bytes: int
    ) -> list[bytes]:
        """Move outputs that are longer than their tail away. OSError if they cannot be read.

        Args:
            number: of the attempt.
            sizes: of stdout and stderr.
            kept: where they go.
            limit_bytes: what is beyond this is cut off.

        Returns:
            The tails of stdout and stderr.
        """
        tails = [b"", b""]
        for index, (stream, size) in enumerate(zip(STREAMS, sizes, strict=True)):
            if size:
                tails[index] = self.read(stream, max(0, size - TAIL_BYTES), TAIL_BYTES)
            if size > TAIL_BYTES:
                with contextlib.suppress(OSError):  # then there is only the tail of it
                    if size > limit_bytes:
                        os.truncate(self._paths[index], limit_bytes)
                    kept.take(number, stream, self._paths[index], min(size, limit_bytes))
        return tails

    def abandon_outputs(self) -> None:
        """Give the next task other files: somebody may still write to these."""
        for path in self._paths:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def empty_scratch(self) -> None:
        """Remove what the task left in its scratch directory. OSError if that cannot be done."""
        try:
            state = os.stat(self._scratch)
        except FileNotFoundError:
            return
        if (state.st_mtime_ns, state.st_mode) == self._empty:
            return
        try:
            os.chmod(self._scratch, 0o700)
            with os.scandir(self._scratch) as entries:
                few = [entry.path for _, entry in zip(range(_FEW_FILES), entries, strict=False)]
            if len(few) < _FEW_FILES:
                for path in few:
                    os.unlink(path)
                self._mark_empty()
                return
        except OSError:
            pass  # a directory among them, or one that may not be written: the thorough way
        self._discard(Path(self._scratch))

    def _mark_empty(self) -> None:
        os.utime(self._scratch, ns=(_EMPTY_NS, _EMPTY_NS))
        state = os.stat(self._scratch)
        self._empty = (state.st_mtime_ns, state.st_mode)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # the task removed it
        return 0


def _file_actions(stdin: int, paths: tuple[str, ...], flags: int) -> FileActions:
    stdout, stderr = paths
    return (
        (os.POSIX_SPAWN_DUP2, stdin, 0),
        (os.POSIX_SPAWN_OPEN, 1, stdout, flags, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, stderr, flags, 0o600),
    )
