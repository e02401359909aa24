"""The pool's file share, seen from outside: files go there in pieces and come back checked.

Each piece is an upload of its own (XEP-0363): what is cut off is sent again from the start of its
piece, and read on from where it was.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

from kestrelctl.core.model.stored_file import StoredFile
from kestrelctl.protocol.upload_slots import Slot

#: How much goes into one upload.
PIECE_BYTES = 64 * 1024 * 1024


class Slots(Protocol):
    """Who gives places to upload to: `UserConnection.request_slot` is one."""

    async def __call__(self, size_bytes: int, filename: str) -> Slot:
        """A new place for so many bytes."""
        ...


class FileShare:
    """Puts files into the share and gets them from there.

    Args:
        slots: asked once for each piece; who only gets files needs none.
        tls: whom to trust, as the XMPP connection does (`xmpp.tls.context`); None for the system's
            authorities.
        piece_bytes: into what files are cut.
    """

    def __init__(
        self,
        slots: Slots | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self._slots = slots
        self._tls = tls
        self._piece_bytes = piece_bytes

    async def put(self, path: Path) -> StoredFile:
        """Sends a file.

        Raises:
            FileChanged: it was written to meanwhile.
            KestrelError: it cannot be read, or the share did not take it.
        """
        raise NotImplementedError

    async def get(self, stored: StoredFile, target: Path) -> None:
        """Writes a file that lies in the share; `target` is there at once and whole, or not.

        What was read before a failure stays beside the target, and the next call reads on.

        Raises:
            FileExpired: the share does not have it any more.
            FileDamaged: what came is not what was sent.
            NoSpace: the disk is full.
            KestrelError: the share cannot be reached, or the target not be written.
        """
        raise NotImplementedError
