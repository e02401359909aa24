"""The file share of a pool, as those who submit jobs and fetch files see it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from kestrelctl.access.connection import Connection
from kestrelctl.access.context import Context
from kestrelctl.core.model.files.stored_file import StoredFile


class Share(Protocol):
    """The place that files are sent to and come from; `files.share.FileShare`, or a test's own."""

    async def put(self, path: Path) -> StoredFile:
        """Sends a file. KestrelError if that cannot be done."""
        ...

    async def has(self, stored: StoredFile) -> bool:
        """Whether a file that was sent is still there."""
        ...

    async def get(self, stored: StoredFile, target: Path) -> None:
        """Writes a stored file. KestrelError if that cannot be done."""
        ...

    def close(self) -> None:
        """Closes the connections that are kept; it may be used again."""
        ...


def open_share(connection: Connection | None, context: Context) -> Share:
    """Opens the share of a pool; without a connection, files only come from there."""
    from kestrelctl.files.share import FileShare

    slots = connection.request_slot if connection is not None else None
    return FileShare(slots, ca_file=context.ca_file)
