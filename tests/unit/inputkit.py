"""Inputs of tasks, and a share that has them."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.stored_file import Piece, StoredFile

ADA, BOB = "ada@users.example.org", "bob@users.example.org"


class Share:
    """A file share that is as fast as the test wants.

    Attributes:
        gets: the first character of each file that was asked for, in order.
        errors: raised by the next gets, the last first.
        open: whether files come at once.
    """

    def __init__(self) -> None:
        self.gets: list[str] = []
        self.errors: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()
        self.ended = 0

    async def get(self, stored: StoredFile, target: Path) -> None:
        text = stored.pieces[0].url.rpartition("/")[2]
        self.gets.append(text[0])
        try:
            await self.open.wait()
            if self.errors:
                raise self.errors.pop()
        finally:
            self.ended += 1
        target.write_text(text)


def an_input(
    text: str, *, name: str = "in", size_bytes: int = 0, executable: bool = False
) -> Input:
    """A file with that text; it says that it is of another size, if one is given."""
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    size_bytes = size_bytes or len(text)
    piece = Piece(sha256=sha256, size_bytes=size_bytes, url=f"http://share/{text}")
    stored = StoredFile(sha256=sha256, size_bytes=size_bytes, pieces=(piece,))
    return Input(name=name, stored=stored, executable=executable)
