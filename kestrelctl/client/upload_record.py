"""Remembers what a user sent to a pool's file share from this machine: nothing is sent twice.

The record is `$XDG_STATE_HOME/kestrel/uploads/POOL/ACCOUNT.json`; for a pool of `up` it is in that
pool's directory, and is deleted with it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import msgspec

from kestrelctl.access.context import Context
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.local.pool_state import pools_directory

#: A file that was sent longer ago is sent again: a job may wait long before its tasks fetch it.
REUSE_SECONDS = 86400.0
MOST_UPLOADS = 1000


class Upload(msgspec.Struct, frozen=True):
    """A file that was sent.

    Attributes:
        at: seconds since the epoch.
    """

    at: float
    stored: StoredFile


class UploadRecord:
    """The files that were sent with one account to one pool.

    It is only a memory: if it cannot be read or written, a file is sent a second time.

    Args:
        file: the file of the record.
        now: returns the seconds since the epoch.
    """

    def __init__(self, file: Path, now: Callable[[], float]) -> None:
        self._file = file
        self._now = now

    def find(self, sha256: str) -> StoredFile | None:
        """Returns the file of that hash, if it was sent not long ago."""
        oldest = self._now() - REUSE_SECONDS
        return next(
            (e.stored for e in self._read() if e.stored.sha256 == sha256 and e.at >= oldest), None
        )

    def add(self, stored: StoredFile) -> None:
        """Adds a file that was sent just now."""
        oldest = self._now() - REUSE_SECONDS
        others = [e for e in self._read() if e.at >= oldest and e.stored.sha256 != stored.sha256]
        kept = [*others, Upload(self._now(), stored)][-MOST_UPLOADS:]
        draft = self._file.with_name(f"{self._file.name}.new")
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)
            draft.touch(mode=0o600)  # anybody who knows the address of a file may read it
            draft.write_bytes(msgspec.json.encode(kept))
            draft.replace(self._file)

    def _read(self) -> list[Upload]:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=list[Upload])
        except (OSError, msgspec.DecodeError, UnicodeError):
            return []


def upload_record(context: Context, now: Callable[[], float]) -> UploadRecord:
    """The record of the user of a context."""
    file = context.user.password_file
    if file is not None and file.is_relative_to(pools_directory()):
        return UploadRecord(file.with_name("uploads.json"), now)
    directory = pools_directory().parent / "uploads" / quote(context.pool, safe="")
    return UploadRecord(directory / f"{quote(context.user.jid, safe='@')}.json", now)
