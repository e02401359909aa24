"""Counts what a task keeps in its scratch directory."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator

_BLOCK_BYTES = 512  # unit of st_blocks (stat(2))
_SLICE_FILES = 64


class ScratchSize:
    """Counts, over many calls and again and again, what is below a directory.

    Files that are deleted and still open are not seen.

    Attributes:
        unreadable: why a part of it cannot be counted; empty if all can.
    """

    __slots__ = ("_files", "_root", "_size_bytes", "_walk", "unreadable")

    def __init__(self, root: str) -> None:
        self._root = root
        self._walk: Iterator[None] | None = None
        self._files = self._size_bytes = 0
        self.unreadable = ""

    def advance(self, until: float) -> tuple[int, int]:
        """Counts on until that moment (monotonic), or to the end; the next call begins anew then.

        Returns:
            Bytes and files so far in this round, which may be less than there is, and at most
            what was there at different moments of it.
        """
        if self._walk is None:
            self._files = self._size_bytes = 0
            self._walk = self._count()
        for _ in self._walk:
            if time.monotonic() >= until:
                return self._size_bytes, self._files
        self._walk = None
        return self._size_bytes, self._files

    def _count(self) -> Iterator[None]:
        directories = [self._root]
        while directories:
            directory = directories.pop()
            try:
                with os.scandir(directory) as entries:
                    for number, entry in enumerate(entries):
                        if entry.is_dir(follow_symlinks=False):
                            directories.append(entry.path)
                        self._add(entry)
                        if number % _SLICE_FILES == 0:
                            yield
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    self.unreadable = f"a directory in it cannot be read: {error.strerror}"
            yield

    def _add(self, entry: os.DirEntry[str]) -> None:
        try:
            self._size_bytes += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
        except FileNotFoundError:
            return
        self._files += 1
