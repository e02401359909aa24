"""Finds the word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the known word most like the given one; None if none is like it."""
    found = get_close_matches(word, list(known), n=1)
    return f"did you mean {found[0]}?" if found else None
