"""Whole outputs of attempts that were too long for the report. Bounded: the oldest go first."""

from __future__ import annotations

import os
from pathlib import Path

from kestrelctl.errors import NotFound

TAIL_BYTES = 4096
"""How much of the end of an output travels with the report."""

STREAMS = ("stdout", "stderr")


class KeptOutputs:
    """A directory of files named `<attempt number>.<stream>`, which survives a restart of the
    worker.

    Args:
        directory: created if missing.
        limit_bytes: most bytes kept in all.
        limit_files: most files kept.
    """

    def __init__(self, directory: Path, *, limit_bytes: int, limit_files: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._limit_files = limit_files
        directory.mkdir(parents=True, exist_ok=True)
        found = sorted((file.stat().st_mtime_ns, file) for file in directory.iterdir())
        self._sizes = {file.name: file.stat().st_size for _, file in found}
        self._bytes = sum(self._sizes.values())
        self._drop_oldest()

    def take(self, number: int, stream: str, file: str, size_bytes: int) -> None:
        """Move a finished output here (same file system). OSError if that cannot be done."""
        name = f"{number}.{stream}"
        os.rename(file, self._directory / name)
        self._bytes += size_bytes - self._sizes.pop(name, 0)
        self._sizes[name] = size_bytes
        self._drop_oldest()

    def read(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes of an output, from `offset` on. NotFound if it is not kept."""
        if stream not in STREAMS:
            raise NotFound(f"there is no stream {stream!r}", hint="stdout or stderr")
        try:
            with open(self._directory / f"{number}.{stream}", "rb", buffering=0) as file:
                return os.pread(file.fileno(), limit, offset)
        except FileNotFoundError:
            raise NotFound(
                f"the {stream} of attempt {number} is not kept",
                cause=f"up to {TAIL_BYTES} bytes are in the report; of longer ones the oldest go",
            ) from None

    def _drop_oldest(self) -> None:
        while self._bytes > self._limit_bytes or len(self._sizes) > self._limit_files:
            name = next(iter(self._sizes))
            self._bytes -= self._sizes.pop(name)
            (self._directory / name).unlink(missing_ok=True)
