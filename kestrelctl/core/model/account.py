"""Accounts of users, `NAME@DOMAIN`."""

from __future__ import annotations


def is_called(account: str, name: str) -> bool:
    """Whether a name means that user: it is the account, or what is before its `@`."""
    return name in (account, account.partition("@")[0])
