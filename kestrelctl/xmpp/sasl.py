"""The mechanisms by which an account is let in (RFC 6120, 6): SCRAM (RFC 5802, 7677) and PLAIN."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Collection
from typing import Protocol

from kestrelctl.errors import Untrusted

#: What a server may ask for: RFC 7677 wants 4,096 at least, servers have 10,000. With fewer the
#: answer would tell whoever asks enough to try many passwords.
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
_NONCE_BYTES = 18


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


class Scram:
    """SCRAM with a hash, without channel binding.

    Args:
        nonce: of this exchange, never used again.
    """

    def __init__(self, name: str, user: str, password: str, nonce: str = "") -> None:
        self.name = name
        self._hash = _HASHES[name]
        self._password = prepared(password).encode()
        escaped = prepared(user).replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce or b64encode(secrets.token_bytes(_NONCE_BYTES)).decode()
        self._own = f"n={escaped},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._own}".encode()

    def answer(self, challenge: bytes) -> bytes:
        if self._signature:
            raise Untrusted("the server asks back where nothing is to be asked")
        try:
            text = challenge.decode()
            fields = dict(part.split("=", 1) for part in text.split(","))
            nonce, iterations = fields["r"], int(fields["i"])
            salt = b64decode(fields["s"], validate=True)
        except (ValueError, KeyError):
            raise Untrusted("the server's side of the login cannot be read") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise Untrusted("the server does not answer this login")
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise Untrusted(f"the server asks for {iterations:,} rounds of a hash")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        key = self._keyed(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        exchange = f"{self._own},{text},{without_proof}".encode()
        proof = self._keyed(hashlib.new(self._hash, key).digest(), exchange)
        self._signature = self._keyed(self._keyed(salted, b"Server Key"), exchange)
        mixed = bytes(a ^ b for a, b in zip(key, proof, strict=True))
        return f"{without_proof},p={b64encode(mixed).decode()}".encode()

    def finish(self, said: bytes) -> None:
        expected = b"v=" + b64encode(self._signature)
        if not self._signature or not hmac.compare_digest(said.split(b",")[0], expected):
            raise Untrusted("the server does not prove that it knows the account")

    def _keyed(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}


def choose(
    offered: Collection[str], user: str, password: str, *, encrypted: bool
) -> Mechanism | None:
    """The best mechanism that a server offers; None if there is none that will do.

    Args:
        encrypted: without encryption the server is on this machine, and nothing is gained by SCRAM,
            which takes 10,000 rounds of a hash from both.
    """
    for name in _HASHES if encrypted else ():
        if name in offered:
            return Scram(name, user, password)
    return PlainMechanism(user, password) if PlainMechanism.name in offered else None
