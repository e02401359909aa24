"""The files at an address, whichever protocol reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple, Protocol

from kestrelctl.errors import KestrelError

#: The most files below one address; more are refused rather than left out.
MOST_FILES = 100_000
#: How much is read before it is hashed and written.
PIECE_BYTES = 1 << 20


class AddressedFile(NamedTuple):
    """One file, or link, that comes.

    Attributes:
        names: of the directories that it is in, and its own, below the address; none if it is what
            the address says.
        executable: whether it is a program.
        pieces: what is in it.
        link: where a link points, which is to what comes, too; empty for a file.
    """

    names: tuple[bytes, ...]
    executable: bool
    pieces: AsyncIterator[bytes]
    link: bytes = b""


class AddressedFiles(Protocol):
    """The files at one address. Each method raises KestrelError if it cannot be read."""

    async def identity(self) -> str:
        """Returns a text that changes when it is changed there; empty if nothing tells."""
        ...

    def each(self) -> AsyncIterator[AddressedFile]:
        """Its files, one after the other; each is read before the next is asked for."""
        ...

    async def close(self) -> None:
        """Gives everything back."""
        ...


def too_many() -> KestrelError:
    """Makes the error that there are more files than may be."""
    return KestrelError(f"there are more than {MOST_FILES:,} files")
