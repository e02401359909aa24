"""Finds the word that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable

#: A longer word is like none that is known, and to compare a megabyte takes a tenth of a second.
_MOST_CHARACTERS = 100
#: The meanings of words of other systems that look like one of these, and are not it.
_OTHER_MEANINGS = {
    "max-fails": "HyperQueue's max_fails N stops a job when more than N of its tasks have failed: "
    "write stop-after with N + 1; max-failures counts the attempts of each task",
}


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the known word most like the given one; None if none is like it."""
    if len(word) > _MOST_CHARACTERS:
        return None
    if meant := _OTHER_MEANINGS.get(word.lstrip("-").replace("_", "-")):
        return meant
    from difflib import get_close_matches  # commands without mistakes need it not

    found = get_close_matches(word, list(known), n=1)
    return f"did you mean {found[0]}?" if found else None
