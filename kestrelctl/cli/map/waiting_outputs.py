"""The outputs of tasks that have ended and wait for their turn to be printed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import IO, Self

from kestrelctl.cli.map.run import EndedInput

#: So much waits in memory; what comes beyond it waits in a temporary file, as GNU parallel does it.
MEMORY_BYTES = 64 * 2**20


class WaitingOutputs:
    """Tasks that have ended, by the number of their input. Leave it as a context.

    Args:
        memory_bytes: how much output waits in memory at most.

    Attributes:
        in_memory_bytes: how much does.
    """

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self.in_memory_bytes = 0
        self._waiting: dict[int, EndedInput] = {}
        self._places: dict[int, tuple[int, int, int]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __contains__(self, number: object) -> bool:
        return number in self._waiting

    def add(self, each: EndedInput) -> None:
        """Keeps a task until it is taken."""
        size_bytes = len(each.ended.stdout) + len(each.ended.stderr)
        if size_bytes and self.in_memory_bytes + size_bytes > self._memory_bytes:
            # Where no file takes it, it waits in memory after all.
            with contextlib.suppress(OSError):
                each = self._in_file(each)
        self.in_memory_bytes += len(each.ended.stdout) + len(each.ended.stderr)
        self._waiting[each.input.number] = each

    def _in_file(self, each: EndedInput) -> EndedInput:
        """Writes the output of a task down; returns the task without it."""
        if self._file is None:
            import tempfile  # it costs a command milliseconds, and few come here

            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed at exit
        _, stdout, stderr = each.ended
        place = self._file.seek(0, os.SEEK_END)
        if self._file.write(stdout + stderr) < len(stdout) + len(stderr):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._places[each.input.number] = (place, len(stdout), len(stderr))
        return each._replace(ended=each.ended._replace(stdout=b"", stderr=b""))

    def take(self, number: int) -> EndedInput:
        """The task of an input, which waits no more."""
        each = self._waiting.pop(number)
        if number not in self._places:
            self.in_memory_bytes -= len(each.ended.stdout) + len(each.ended.stderr)
            return each
        assert self._file is not None
        place, stdout_bytes, stderr_bytes = self._places.pop(number)
        self._file.seek(place)
        stdout, stderr = self._file.read(stdout_bytes), self._file.read(stderr_bytes)
        return each._replace(ended=each.ended._replace(stdout=stdout, stderr=stderr))

    def take_all(self) -> Iterator[EndedInput]:
        """All that wait, in the order of their inputs."""
        for number in sorted(self._waiting):
            yield self.take(number)
