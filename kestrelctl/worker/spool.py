"""Results that the manager has not acknowledged yet: they survive a `kill -9` of the worker."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kestrelctl.errors import KestrelError
from kestrelctl.worker.own_files import OwnDirectory, make_file

log = logging.getLogger(__name__)

Record = tuple[int, bytes]
"""Attempt number, and a payload that only the caller understands."""

SMALL_BYTES = 64 << 10
"""A file of acknowledged records only is emptied from this size on, and when it is closed."""
GARBAGE_BYTES = 4 << 20
"""A file with this much in it beyond what is still needed is written anew, unless what is needed is
so much that this would happen all the time:"""
GARBAGE_SHARE = 4
"""Then it has so many times as much beyond that."""
_NEW = "results.new"
RETRY_SECONDS = 1.0
"""How often a disk that was full is tried again."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Record]).decode


class DiskSpool:
    """An append-only file: one line, and one write, for each batch of records.

    A line begins with its line break, so that one cut short by a crash or a full disk cannot spoil
    the next.

    Nothing is flushed to the disk (fsync). What the worker wrote is in the kernel's hands and
    outlives the worker; a result lost together with the machine's power was never acknowledged, so
    the manager runs that task again, as it would had the worker died a moment earlier. Likewise a
    record that was forgotten may come back from `load` after a crash: the manager knows it by its
    number and acknowledges it again.

    A full disk is no error here: records stay in memory, `degraded` says why, and every later call
    tries again.

    Args:
        path: directory, created if missing. Only one spool at a time may be open on it.

    Raises:
        KestrelError: another worker has it, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[int, bytes] = {}
        self._unwritten: list[Record] = []
        self._size_bytes = 0
        self._live_bytes = 0
        self._most_garbage_bytes = GARBAGE_BYTES
        self._retry_at = 0.0
        self.degraded: str | None = None
        """Why records are only in memory; None if all is well."""
        try:
            self._directory = OwnDirectory(path)
            self._lock = _lock(path, self._directory.fd)
            self._file = make_file("results", os.O_RDWR | os.O_APPEND, self._directory.fd)
        except OSError as error:
            raise KestrelError(
                f"the spool {path} cannot be used",
                cause=error.strerror,
                hint="let the worker's user own that directory, or give it another one",
            ) from error
        self._read()
        if self._records:
            self._rewrite()
        elif self._size_bytes:
            self._truncate(0)

    def load(self) -> list[Record]:
        """Returns the records that are not acknowledged, oldest first.

        After the start, these are what an earlier worker left.
        """
        return list(self._records.items())

    def append(self, records: Iterable[Record]) -> None:
        """Adds records, with one write. Never raises for want of space."""
        records = list(records)
        self._remember(records)
        self._unwritten += records
        self._write()

    def forget(self, numbers: Iterable[int]) -> None:
        """Forgets attempts that the manager has acknowledged; unknown numbers are no error."""
        for number in numbers:
            payload = self._records.pop(number, None)
            if payload is not None:
                self._live_bytes -= _estimate(payload)
        if self._unwritten:
            self._unwritten = [record for record in self._unwritten if record[0] in self._records]
            self._write()
        if not self._records:
            if self._size_bytes >= SMALL_BYTES:
                self._truncate(0)
        elif self._size_bytes - self._live_bytes >= max(
            self._most_garbage_bytes, GARBAGE_SHARE * self._live_bytes
        ):
            self._rewrite()

    def __len__(self) -> int:
        """The number of records that are not acknowledged."""
        return len(self._records)

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return self._size_bytes

    def close(self) -> None:
        """Lets another worker have the directory."""
        if not self._records:
            self._truncate(0)
        self._retry_at = 0.0
        self._write()
        self._directory.close()
        os.close(self._file)
        os.close(self._lock)

    def _read(self) -> None:
        with open(self._file, "rb", closefd=False) as file:
            for line in file:
                self._size_bytes += len(line)
                if line.isspace():
                    continue
                try:
                    self._remember(_decode(line))
                except (msgspec.MsgspecError, UnicodeError):
                    log.warning("%s: skipped a broken line, %d bytes", self._path, len(line))

    def _remember(self, records: Iterable[Record]) -> None:
        for number, payload in records:
            self._live_bytes += _estimate(payload) - _estimate(self._records.get(number))
            self._records[number] = payload

    def _write(self) -> None:
        if not self._unwritten:
            self.degraded = None
            return
        if self.degraded and time.monotonic() < self._retry_at:
            return
        line = b"\n" + _encode(self._unwritten)
        try:
            if os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._truncate(self._size_bytes)
            self.degraded = f"results are only in memory: {error.strerror}"
            self._retry_at = time.monotonic() + RETRY_SECONDS
            return
        self._size_bytes += len(line)
        self._unwritten = []
        self.degraded = None

    def _truncate(self, size_bytes: int) -> None:
        try:
            os.ftruncate(self._file, size_bytes)
            self._size_bytes = size_bytes
        except OSError as error:
            self.degraded = f"the spool cannot be emptied: {error.strerror}"

    def _rewrite(self) -> None:
        """Replaces the file by one with what is still needed; on trouble the old one stays."""
        directory = self._directory.fd
        line = b"\n" + _encode(list(self._records.items()))
        file = -1
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_NEW, dir_fd=directory)
            file = make_file(_NEW, os.O_RDWR | os.O_APPEND | os.O_EXCL, directory)
            if os.write(file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.rename(_NEW, "results", src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as error:
            self.degraded = f"the spool cannot be made smaller: {error.strerror}"
            self._most_garbage_bytes = self._size_bytes - self._live_bytes + SMALL_BYTES
            if file >= 0:
                os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(_NEW, dir_fd=directory)
            return
        os.close(self._file)
        self._file, self._size_bytes, self._unwritten = file, len(line), []
        self._most_garbage_bytes = GARBAGE_BYTES
        self.degraded = None


def _estimate(payload: bytes | None) -> int:
    """Bytes that a record takes in the file: base64, a number, punctuation."""
    return 0 if payload is None else len(payload) * 4 // 3 + 24


def _lock(path: Path, directory: int) -> int:
    file = make_file("lock", os.O_RDWR, directory)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.pread(file, 20, 0).decode() or "unknown"
        os.close(file)
        raise KestrelError(
            f"the spool {path} is in use",
            cause=f"another worker has it (process {owner})",
            hint="stop that worker, or give this one another directory",
        ) from None
    os.ftruncate(file, 0)
    with contextlib.suppress(OSError):  # the number is a courtesy; a full disk is no obstacle
        os.pwrite(file, str(os.getpid()).encode(), 0)
    return file
