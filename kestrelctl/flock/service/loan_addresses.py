"""Addresses between pools: `flock@POOL` speaks for a pool, `flock@POOL/CLASS` is a loan of it."""

from __future__ import annotations

from kestrelctl.core.model.neighbour import FLOCK


def flock_of(pool: str) -> str:
    """The address of a pool's flock service."""
    return f"{FLOCK}@{pool}"


def loan_of(pool: str, loan: str) -> str:
    """The address at which a pool lends machines of a class."""
    return f"{FLOCK}@{pool}/{loan}"


def pool_and_loan(jid: str) -> tuple[str, str]:
    """The pool and the class that an address names; an empty class for the service itself."""
    account, _, loan = jid.partition("/")
    return account.partition("@")[2], loan
