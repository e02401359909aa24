"""Explains SQLite's errors to whoever runs the manager."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kestrelctl.errors import KestrelError, StoreFull, StoreUnusable

#: Primary result codes, https://www.sqlite.org/rescode.html
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
#: SQLite's error on a file system that takes no writes -> what to do about it.
_UNWRITABLE = {
    sqlite3.SQLITE_FULL: "free space on the file system of {directory}",
    sqlite3.SQLITE_IOERR: "free space on, or repair, the file system of {directory}",
    sqlite3.SQLITE_READONLY: "let the manager's user write {directory}, on a file system that is"
    " mounted for writing",
    sqlite3.SQLITE_CANTOPEN: "let the manager's user make and open files in {directory}",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns SQLite's errors about the database at `path` into ours; bugs pass through.

    Raises:
        StoreFull: no space, an I/O error, no right to write, or a lock of another program; it may
            work later.
        StoreUnusable: the database is damaged.
        KestrelError: SQLite cannot go on.
    """
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise
    except sqlite3.DatabaseError as error:
        raise _explain(error, path) from error


def _explain(error: sqlite3.DatabaseError, path: Path) -> KestrelError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    cause = f"{path}: {error} ({getattr(error, 'sqlite_errorname', 'no code')})"
    if code in _DAMAGED:
        return StoreUnusable.damaged(path, cause)
    if code in _LOCKED:
        return StoreFull(cause=cause, hint=f"end the program that has {path.name} locked")
    if code in _UNWRITABLE:
        return StoreFull(cause=cause, hint=_UNWRITABLE[code].format(directory=path.parent))
    return KestrelError("The manager's store failed", cause=cause)
