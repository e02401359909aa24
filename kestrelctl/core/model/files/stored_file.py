"""Files that lie in the pool's file share: what to ask for, and how to know that it is right."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file that the share keeps by itself.

    Args:
        sha256: of the part, in hexadecimal.
        size_bytes: at least 1.
        url: where it is read; whoever knows the address may read it.
    """

    sha256: str
    size_bytes: int
    url: str


class StoredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the share.

    Args:
        sha256: of the whole, in hexadecimal; the file's name wherever files are compared.
        size_bytes: of the whole.
        pieces: in order; none of an empty file.
    """

    sha256: str
    size_bytes: int
    pieces: tuple[Piece, ...]


def problem_with_stored_file(stored: StoredFile) -> str | None:
    """Says why a stored file cannot be fetched; None if it can."""
    if not is_sha256(stored.sha256):
        return "the hash of a file is 64 hexadecimal digits"
    for piece in stored.pieces:
        if not is_sha256(piece.sha256):
            return "the hash of a piece is 64 hexadecimal digits"
        if piece.size_bytes < 1:
            return "a piece has at least one byte"
        if not is_share_address(piece.url):
            return "a piece is read at an address that begins with https:// or http://"
    if sum(piece.size_bytes for piece in stored.pieces) != stored.size_bytes:
        return "the pieces of a file are not as large as the file"
    return None


def is_share_address(text: str) -> bool:
    """Whether a text is an address that a share can be asked at: HTTP, in plain characters."""
    if not text.startswith(("https://", "http://")):
        return False
    if not (text.isascii() and text.isprintable()) or " " in text:
        return False
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
        return bool(host.encode("idna"))
    except ValueError:  # no name for DNS, or no port
        return False


def is_sha256(text: str) -> bool:
    """Whether a text is such a hash, as it is written here."""
    return len(text) == 64 and all(each in "0123456789abcdef" for each in text)
