"""Reads the output of tasks from the pool's file share."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kestrelctl.core.model.files.stored_file import StoredFile

if TYPE_CHECKING:
    from kestrelctl.access.share import Share

#: The most that is in memory at a time.
_PIECE_BYTES = 1 << 20


class StoredLogs:
    """The logs in the file share, which is opened when the first of them is wanted.

    Args:
        open_share: opens it.
    """

    def __init__(self, open_share: Callable[[], Share]) -> None:
        self._open = open_share
        self._share: Share | None = None

    async def pieces(self, stored: StoredFile) -> AsyncIterator[bytes]:
        """Yields all of a file, in order, once the whole file is here and verified.

        Raises:
            FileExpired: the share does not have it any more.
            FileDamaged: what came is not what was stored.
            Unreachable: the share is away.
            KestrelError: there is no room for it in the directory for temporary files.
        """
        if self._share is None:
            self._share = self._open()
        with tempfile.TemporaryDirectory(prefix="kestrel-") as directory:
            path = Path(directory, "log")
            await self._share.get(stored, path)
            with await asyncio.to_thread(path.open, "rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                    yield piece
