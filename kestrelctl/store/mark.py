"""A second witness of how far a store came: a small file beside the database.

SQLite opens a database whose log was deleted or cut as if it had always ended there. So each commit
counts itself in the database, and then here. The mark is never ahead of the database, unless the
database has lost something. It is flushed when the store is opened and closed; after a power
failure it may lag behind, and then tells of less, but never of what did not happen.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

MARK = "kestrel.mark"

#: How many starts and jobs are taken to have followed, if nobody is left to ask.
UNKNOWN_STARTS = 10_000
UNKNOWN_JOBS = 100_000


class Reached(msgspec.Struct, frozen=True, order=True):
    """The progress of a store.

    Attributes:
        commits: how many there ever were.
        epoch: starts of the manager.
        last_job_id: the highest that was ever given away.
    """

    commits: int
    epoch: int
    last_job_id: int


class Mark:
    """The file of one store. Only the manager that holds the directory's lock writes it."""

    def __init__(self, data_dir: Path) -> None:
        """Opens the file; makes an empty one if there is none.

        Raises:
            OSError: it cannot be opened.
        """
        self._file = os.open(data_dir / MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, reached: Reached) -> None:
        """Notes how far the store came; all lines are equally long, so that one replaces another.

        Raises:
            OSError: it cannot be written.
        """
        line = f"{reached.commits:020} {reached.epoch:010} {reached.last_job_id:020}\n"
        os.pwrite(self._file, line.encode(), 0)

    def close(self) -> None:
        """Flushes what was written, as far as the disk takes it: a mark that lags does no harm."""
        with suppress(OSError):
            os.fsync(self._file)
        os.close(self._file)

    def flush(self) -> None:
        """Makes the disk keep what was written.

        Raises:
            OSError: it does not.
        """
        os.fsync(self._file)


def read_mark(data_dir: Path) -> Reached | None:
    """Reads how far the store in a directory came; None if nobody noted it."""
    try:
        commits, epoch, last_job_id = (data_dir / MARK).read_text("ascii").split()
        return Reached(int(commits), int(epoch), int(last_job_id))
    except (OSError, ValueError):
        return None
