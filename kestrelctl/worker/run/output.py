"""Whole outputs of attempts that were too long for the report. Bounded: the oldest go first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kestrelctl.core.model.result import TAIL_BYTES
from kestrelctl.errors import NotFound
from kestrelctl.worker.own_files import OwnDirectory, is_own_file, open_file

STREAMS = ("stdout", "stderr")


class KeptOutputs:
    """A directory of files named `<attempt number>.<stream>`, which survives a restart of the
    worker.

    Args:
        directory: created if missing.
        discard: removes an entry of an open directory by its name, whatever it is.
        limit_bytes: most bytes kept in all.
        limit_files: most files kept.
    """

    def __init__(
        self,
        directory: Path,
        discard: Callable[[str, int], None],
        *,
        limit_bytes: int,
        limit_files: int,
    ) -> None:
        self._directory = OwnDirectory(directory)
        self._discard = discard
        self._limit_bytes = limit_bytes
        self._limit_files = limit_files
        found = []
        for name in os.listdir(self._directory.fd):
            state = os.stat(name, dir_fd=self._directory.fd, follow_symlinks=False)
            if is_own_file(state):
                found.append((state.st_mtime_ns, name, state.st_size))
            else:
                discard(name, self._directory.fd)
        self._sizes = {name: size_bytes for _, name, size_bytes in sorted(found)}
        self._bytes = sum(self._sizes.values())
        self._drop_oldest()

    def take(self, number: int, stream: str, place: int, size_bytes: int) -> None:
        """Moves a finished output here (same file system). OSError if that cannot be done.

        Args:
            place: the open directory where it is, under the name of the stream.
        """
        name = f"{number}.{stream}"
        self._directory.renew()
        os.rename(stream, name, src_dir_fd=place, dst_dir_fd=self._directory.fd)
        self._bytes += size_bytes - self._sizes.pop(name, 0)
        self._sizes[name] = size_bytes
        self._drop_oldest()

    def open(self, number: int, stream: str) -> int:
        """Opens an output; whoever calls closes it. NotFound if it is not kept."""
        if stream not in STREAMS:
            raise NotFound(f"there is no stream {stream!r}", hint="stdout or stderr")
        try:
            return open_file(f"{number}.{stream}", os.O_RDONLY, self._directory.fd)
        except OSError:
            raise NotFound(
                f"the {stream} of attempt {number} is not kept",
                cause=f"up to {TAIL_BYTES} bytes are in the report; of longer ones the oldest go",
            ) from None

    def read(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Reads up to `limit` bytes of an output, from `offset` on. NotFound if it is not kept."""
        file = self.open(number, stream)
        try:
            return os.pread(file, limit, offset)
        finally:
            os.close(file)

    def _drop_oldest(self) -> None:
        while self._bytes > self._limit_bytes or len(self._sizes) > self._limit_files:
            name = next(iter(self._sizes))
            self._bytes -= self._sizes.pop(name)
            try:
                os.unlink(name, dir_fd=self._directory.fd)
            except FileNotFoundError:
                pass
            except OSError:  # somebody put a directory in its place
                self._discard(name, self._directory.fd)

    def close(self) -> None:
        """Gives the descriptor back."""
        self._directory.close()
