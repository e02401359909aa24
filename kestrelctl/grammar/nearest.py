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


#: Words with a smaller share of letters in common are not one word and its typing error: `lsit` and
#: `list` have 0.75, `since` and `name` 0.44. Two of three letters are what a swap leaves.
_ALIKE = 0.75
_ALIKE_IF_SHORT = 0.66
_SHORT_CHARACTERS = 3


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint that names the known word most like the given one; None if none is like it.

    Dashes before a word are not compared: all options have them in common.
    """
    if len(word) > _MOST_CHARACTERS:
        return None
    bare = word.lstrip("-").lower()
    if meant := _OTHER_MEANINGS.get(bare.replace("_", "-")):
        return meant
    found = _most_like(bare, {each.lstrip("-"): each for each in known})
    return f"did you mean {found}?" if found else None


def _most_like(word: str, known: dict[str, str]) -> str | None:
    from difflib import get_close_matches  # commands without mistakes need it not

    alike = _ALIKE_IF_SHORT if len(word) <= _SHORT_CHARACTERS else _ALIKE
    if found := get_close_matches(word, known, n=1, cutoff=alike):
        return known[found[0]]
    begun = [each for each in known if each.startswith(word)]
    return known[begun[0]] if len(begun) == 1 and len(word) >= _SHORT_CHARACTERS else None
