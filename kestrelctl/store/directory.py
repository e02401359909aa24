"""The manager's directory: private, and used by one manager at a time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from kestrelctl.errors import KestrelError

LOCK = "manager.lock"
#: The longest path of a database: `MAX_PATHNAME` of SQLite's os_unix.c, with room for its journal.
MOST_PATH_BYTES = 512 - len("-journal")


def claim(data_dir: Path) -> int:
    """Makes the directory if there is none, and takes it for this process.

    Returns:
        An open file; closing it, or the end of the process, releases the directory.

    Raises:
        KestrelError: another manager has it, or it cannot be used.
    """
    path = data_dir / LOCK
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(data_dir, error) from error
    try:
        # flock and not lockf: it also holds between two openings in the same process.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        holder = os.read(lock, 20).decode(errors="replace").strip()
        os.close(lock)
        raise KestrelError(
            f"Another manager uses {data_dir}",
            cause=f"process {holder or 'unknown'} holds {path}",
            hint="stop that manager first, or give this one another --data-dir",
        ) from None
    except OSError as error:
        os.close(lock)
        raise unusable(data_dir, error) from error
    return lock


def check_path(database: Path) -> None:
    """Passes if a path is short enough for SQLite, whose own error is only that it cannot open it.

    Raises:
        KestrelError: it is too long.
    """
    size_bytes = len(os.fsencode(os.path.realpath(database)))
    if size_bytes > MOST_PATH_BYTES:
        raise KestrelError(
            f"A store cannot be at {database}",
            cause=f"its path has {size_bytes:,} bytes, and SQLite takes {MOST_PATH_BYTES:,}",
            hint="choose a directory with a shorter path",
        )


def create_private(path: Path) -> None:
    """Makes sure that the file exists and that nobody else can read it.

    Raises:
        KestrelError: it cannot be made, or is somebody else's.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(file, 0o600)
        finally:
            os.close(file)
    except OSError as error:
        raise unusable(path.parent, error) from error


def unusable(data_dir: Path, error: OSError) -> KestrelError:
    return KestrelError(
        f"The data directory {data_dir} cannot be used",
        cause=f"{error.filename or data_dir}: {error.strerror}",
        hint="give the manager a directory of its own on a local disk with --data-dir",
    )
