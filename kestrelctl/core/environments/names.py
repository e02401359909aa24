"""The names of environments, by which the worker that has started one finds it again."""

from __future__ import annotations

import hashlib
import re

PREFIX = "kestrel"
_MOST_LETTERS = 14


class EnvironmentOwner:
    """A worker that starts environments for a pool.

    Names are fit for machines and containers: short, of small letters, digits and dashes. Two
    owners stay different although letters had to go: a digest of both names is in it, too.
    """

    def __init__(self, pool: str, worker: str) -> None:
        self.pool = pool
        self.worker = worker
        whole = hashlib.sha256(f"{pool}\0{worker}".encode()).hexdigest()[:8]
        self.prefix = f"{PREFIX}-{_part(pool)}-{_part(worker)}-{whole}-"
        """The beginning of the names of all that it starts, and of nothing else."""

    def name(self, number: int) -> str:
        """The name of its environment of that number."""
        return f"{self.prefix}{number}"

    def number(self, name: str) -> int | None:
        """The number in a name; None if it is not of this owner."""
        rest = name.removeprefix(self.prefix)
        if rest == name or not (rest.isascii() and rest.isdecimal()):
            return None
        return int(rest) if self.name(int(rest)) == name else None


def _part(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_MOST_LETTERS].strip("-") or "x"
