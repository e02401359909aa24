"""Directories, one for each loan, in which results wait for the pools whose tasks they are of."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from kestrelctl.flock.rules.lending import LentKey
from kestrelctl.worker.process import Spool
from kestrelctl.worker.spool import DiskSpool


class DiskSpools:
    """The spools of one manager.

    Args:
        root: the directory in which they are; made when it is needed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, borrower: str, loan: str) -> Spool:
        """The spool of a loan."""
        path = self._path(borrower, loan)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return DiskSpool(path)

    def kept(self) -> list[LentKey]:
        """The loans of which an earlier process has left results."""
        return sorted((path.parent.name, path.name) for path in self._root.glob("*/*"))

    def remove(self, borrower: str, loan: str) -> None:
        """Removes the spool of a loan, which is not needed any more."""
        path = self._path(borrower, loan)
        shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()

    def _path(self, borrower: str, loan: str) -> Path:
        # A domain that the server lets through has no `/`; what has one never gets here.
        return self._root / borrower.replace("/", "_") / loan
