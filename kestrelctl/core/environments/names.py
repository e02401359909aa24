"""What environments are called, so that each is found again by the worker that has started it."""

from __future__ import annotations

import hashlib
import re

PREFIX = "kestrel"
_MOST_LETTERS = 14


class EnvironmentOwner:
    """A worker that starts environments for a pool.

    Names are fit for machines and containers: short, of small letters, digits and dashes. Letters
    that had to go make no two owners one: a digest of both names is in it, too.
    """

    def __init__(self, pool: str, worker: str) -> None:
        self.pool = pool
        self.worker = worker
        whole = hashlib.sha256(f"{pool}\0{worker}".encode()).hexdigest()[:8]
        self.prefix = f"{PREFIX}-{_part(pool)}-{_part(worker)}-{whole}-"
        """With which the names of all that it starts begin, and of nothing else."""

    def name(self, number: int) -> str:
        """What its environment of that number is called."""
        return f"{self.prefix}{number}"

    def number(self, name: str) -> int | None:
        """The number in a name; None if it is not of this owner."""
        rest = name.removeprefix(self.prefix)
        if rest == name or not (rest.isascii() and rest.isdecimal()):
            return None
        return int(rest) if self.name(int(rest)) == name else None


def _part(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_MOST_LETTERS].strip("-") or "x"
