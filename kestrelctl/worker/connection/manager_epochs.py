"""Keeps what the manager of each pool told of itself last, to repeat it to whichever comes next.

A worker cannot judge it: only managers of that pool can (`core.model.sealed_epoch`). It outlives
the worker's process, because after a power failure the older of two managers may be back first.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from kestrelctl.protocol.workers import ShownEpoch
from kestrelctl.worker.own_files import OwnDirectory, make_file, open_file

log = logging.getLogger(__name__)

_FILE, _NEW = "epochs", "epochs.new"
_MOST_BYTES = 1 << 20
_decode = msgspec.json.Decoder(dict[str, ShownEpoch]).decode


class ManagerEpochs:
    """Sealed epochs by pool.

    Nothing is flushed to the disk (fsync), as in the spool: what was written outlives the process.
    What cannot be read or written is no error: other workers have been told the same.

    Args:
        directory: where they are kept; created if missing. None to keep them in memory only.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._epochs: dict[str, ShownEpoch] = {}
        self._directory: OwnDirectory | None = None
        if directory is None:
            return
        try:
            self._directory = OwnDirectory(directory)
            file = open_file(_FILE, os.O_RDONLY, self._directory.fd)
            with open(file, "rb") as opened:
                self._epochs = _decode(opened.read(_MOST_BYTES))
        except FileNotFoundError:
            pass
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            log.warning("%s: what managers told of themselves cannot be read: %s", directory, error)

    def of(self, pool: str) -> ShownEpoch | None:
        """Returns what the manager of a pool told last; None if it has told nothing."""
        return self._epochs.get(pool)

    def keep(self, pool: str, epoch: ShownEpoch) -> None:
        """Notes what the manager of a pool tells."""
        if self._epochs.get(pool) != epoch:
            self._epochs[pool] = epoch
            self._write()

    def _write(self) -> None:
        if self._directory is None:
            return
        parent = self._directory.fd
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(_NEW, dir_fd=parent)
            file = make_file(_NEW, os.O_WRONLY | os.O_EXCL, parent)
            with open(file, "wb") as opened:
                opened.write(msgspec.json.encode(self._epochs))
            os.rename(_NEW, _FILE, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError as error:
            log.warning("what the manager told of itself is kept in memory only: %s", error)

    def close(self) -> None:
        """Gives the directory back."""
        if self._directory is not None:
            self._directory.close()
            self._directory = None
