"""Which other servers reach a pool, and as whom its own server shows itself to them."""

from __future__ import annotations

import msgspec


class Federation(msgspec.Struct, frozen=True, kw_only=True):
    """How a private server talks to others (RFC 6120, server to server).

    Attributes:
        domains: of other servers whose accounts reach the pool; no others do.
        certificate: file (PEM) of the pool's domain, with those between it and the authority.
        key: file (PEM) that belongs to it.
        interfaces: addresses at which it listens, as Prosody writes them.
        users: accounts (bare JIDs) of these domains that may submit.
    """

    domains: tuple[str, ...]
    certificate: str
    key: str
    interfaces: tuple[str, ...] = ("*", "::")
    port: int = 5269
    users: tuple[str, ...] = ()
