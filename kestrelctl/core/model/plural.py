"""Counts in words, for people."""

from __future__ import annotations


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Writes `1 task`, `1,000 tasks`; `nouns` is the plural of a noun that needs more than an s."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {nouns or noun + 's'}"
