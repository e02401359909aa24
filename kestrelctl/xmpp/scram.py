"""SCRAM (RFC 5802, 7677), by which both sides prove that they know the password.

A module of its own: the libraries of hashes take longer to load than a command that logs in to a
server on this machine, without it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode

from kestrelctl.errors import Untrusted
from kestrelctl.xmpp.sasl import SCRAM_HASHES, prepared

#: What a server may ask for: RFC 7677 wants 4,096 at least, servers have 10,000. With fewer the
#: answer would tell whoever asks enough to try many passwords.
LEAST_ITERATIONS = 4096
MOST_ITERATIONS = 1_000_000
_NONCE_BYTES = 18


class Scram:
    """SCRAM with a hash, without channel binding.

    Args:
        nonce: of this exchange, never used again.
    """

    def __init__(self, name: str, user: str, password: str, nonce: str = "") -> None:
        self.name = name
        self._hash = SCRAM_HASHES[name]
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
