"""Which of many seeds are tried: each commit tries a part of them, and some commits all."""

from __future__ import annotations

import os

from turns import commit_number

#: With this variable set to `all`, every seed is tried.
ALL = "KESTREL_SEEDS"


def due(count: int, parts: int, turn: int | None = None, *, first: int = 0) -> list[int]:
    """The seeds below `count` that a commit tries.

    Args:
        parts: each commit tries one of so many.
        first: the first of all; those before it are tried elsewhere.
        turn: the number of the commit; None for that of this checkout.
    """
    if os.environ.get(ALL) == "all":
        return list(range(first, count))
    number = commit_number() if turn is None else turn
    return list(range(first + (number - first) % parts, count, parts))
