"""The mechanisms by which an account is let in (RFC 6120, 6): SCRAM and PLAIN."""

from __future__ import annotations

from typing import Protocol

from kestrelctl.errors import Untrusted

#: Mechanism -> its hash; the best first.
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}


class Mechanism(Protocol):
    """One exchange with the server."""

    name: str

    def first(self) -> bytes:
        """The first words to the server."""

    def answer(self, challenge: bytes) -> bytes:
        """Answers a challenge. Raises Untrusted if the challenge makes no sense."""

    def finish(self, said: bytes) -> None:
        """Checks the server's words on letting the account in. Untrusted if it does not know it."""


def prepared(text: str) -> str:
    """A name or password as both sides have it (RFC 4013)."""
    if text.isascii():
        return text
    import stringprep
    import unicodedata

    kept = (c for c in text if not stringprep.in_table_b1(c))
    spaced = "".join(" " if stringprep.in_table_c12(c) else c for c in kept)
    return unicodedata.normalize("NFKC", spaced)


class PlainMechanism:
    """PLAIN (RFC 4616): for encrypted streams, and servers on this machine."""

    name = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._said = f"\0{prepared(user)}\0{prepared(password)}".encode()

    def first(self) -> bytes:
        return self._said

    def answer(self, challenge: bytes) -> bytes:
        raise Untrusted("the server asks back where nothing is to be asked")

    def finish(self, said: bytes) -> None:
        """Nothing proves that the server knows the account."""
