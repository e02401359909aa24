"""Joining a pool with a token: what the token holds, and the two messages that follow.

`docs/protocol.md` shows one of each. A token is one word that passes through a terminal, a chat
window or a mail: JSON in the alphabet of RFC 4648, 5.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec

from kestrelctl.errors import UsageError
from kestrelctl.protocol.work import Message, Refused

TOKEN_VERSION = 1


class Join(Message, frozen=True, kw_only=True, tag="join"):
    """A machine that has logged in with a temporary account wants one of its own.

    Attributes:
        name: the wanted name; empty for that of the token.
    """

    version: int
    name: str = ""


class NewAccount(Message, frozen=True, kw_only=True, tag="joined"):
    """The machine is a worker now, with this account. The temporary one is deleted."""

    jid: str
    password: str


ToJoiner = NewAccount | Refused


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a machine needs to join a pool. Whoever has it may do so, once.

    Attributes:
        host, port: of the server, as the joining machine reaches it.
        pool: the pool's domain.
        jid, password: the temporary account, whose name says until when it holds.
        ca: certificates (PEM) of the only authorities to trust; empty for the system's.
    """

    v: int = TOKEN_VERSION
    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    tls: bool = True
    pool: str
    jid: str
    password: str
    ca: str = ""

    def encode(self) -> str:
        """The token as one word."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


class _Version(msgspec.Struct):
    v: int = TOKEN_VERSION


def decode_token(text: str) -> Token:
    """The token in a text, which may have been broken into lines.

    Raises:
        UsageError: there is none, or one of another version.
    """
    word = "".join(text.split())
    try:
        plain = base64.b64decode(word + "=" * (-len(word) % 4), altchars=b"-_", validate=True)
        version = msgspec.json.decode(plain, type=_Version).v
        if version != TOKEN_VERSION:
            raise UsageError(
                f"this token is of version {version}, this program knows {TOKEN_VERSION}",
                hint="install the version that the pool's manager has",
            )
        return msgspec.json.decode(plain, type=Token)
    except (binascii.Error, ValueError, RecursionError, msgspec.DecodeError) as error:
        raise UsageError(
            "this is no token for joining a pool",
            cause="it is empty" if not word else str(error),
            hint="copy all of what `kestrelctl worker enroll` printed",
        ) from None
