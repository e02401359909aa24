"""Settings of a pool's server: which others reach it, and as whom it shows itself to them."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.neighbour import RECLAIM_MINUTES


class FlockMembership(msgspec.Struct, frozen=True, kw_only=True):
    """The flock that a pool is in: whose servers it trusts, and how it gets there.

    Attributes:
        authorities: file (PEM) of those who sign certificates of its pools; empty for none.
        pins: SHA-256 of the certificate of a domain, in hex; no other of that domain is trusted.
        address_directories: directories with files that say where a domain's server listens; they
            come before DNS, and the first of them before the next.
        through: domain of the pool to join through; the pool's own for the first of a flock.
        minute_seconds: unit of the intervals in which pools tell each other things.
        reclaim_minutes: how many such units tasks of others may go on while own ones wait.
        fixed: domains of all pools of the flock, if they do not find each other.
    """

    authorities: str = ""
    pins: dict[str, str] = {}
    address_directories: tuple[str, ...] = ()
    through: str
    minute_seconds: float = 60.0
    reclaim_minutes: float = RECLAIM_MINUTES
    fixed: tuple[str, ...] = ()


class Federation(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a private server for talking to others (RFC 6120, server to server).

    Attributes:
        domains: those of other servers whose accounts reach the pool; no others do.
        certificate: file (PEM) of the pool's domain, with those between it and the authority.
        key: file (PEM) that belongs to it.
        interfaces: addresses at which it listens, as Prosody writes them.
        users: accounts (bare JIDs) of these domains that may submit.
        flock: other pools that it talks to; None for none.
    """

    domains: tuple[str, ...] = ()
    certificate: str
    key: str
    interfaces: tuple[str, ...] = ("*", "::")
    port: int = 5269
    users: tuple[str, ...] = ()
    flock: FlockMembership | None = None
