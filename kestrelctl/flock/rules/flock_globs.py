"""Wildcards over the names of pools, users and groups, in any case: `*`, `?`, `[abc]`, `[!abc]`."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

#: The longest glob, in characters, and the most of one sort in a rule.
MAX_GLOB_CHARACTERS = 255
MAX_GLOBS = 50

_WILD = re.compile(r"[*?\[]")
#: A text in quotes in an expression holds these as they are.
_PLAIN = re.compile(r"[!#-\[\]-~]+")


def fits_name(globs: Collection[str], name: str) -> bool:
    """Whether one of them fits a name; none at all fit any."""
    return not globs or any(fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def fits_user(globs: Collection[str], user: str) -> bool:
    """Whether one of them fits an account; one without an `@` is held against the name in it."""
    name = user.partition("@")[0]
    return not globs or any(fits_name((glob,), user if "@" in glob else name) for glob in globs)


def fits_anybody(globs: Collection[str]) -> bool:
    """Whether they fit every name, whatever it is."""
    return not globs or any(glob.strip("*") == "" for glob in globs)


def accounts_named(globs: Collection[str]) -> list[str] | None:
    """The accounts that they fit, in lower case; None if no list of texts says that."""
    if not all("@" in glob and not _WILD.search(glob) and _PLAIN.fullmatch(glob) for glob in globs):
        return None
    return sorted({glob.lower() for glob in globs})


def problem_with_globs(globs: Collection[str], what: str) -> str | None:
    """The first thing wrong with them; None if all is well.

    Args:
        what: a pool, a user or a group, for the message.
    """
    if len(globs) > MAX_GLOBS:
        return f"a rule names at most {MAX_GLOBS} {what}s, not {len(globs)}"
    for glob in globs:
        shown = repr(glob[:80])
        if not glob:
            return f"the name of a {what} is empty: leave it out for any {what}"
        if len(glob) > MAX_GLOB_CHARACTERS:
            return f"{shown} has more than {MAX_GLOB_CHARACTERS} characters"
        if not glob.isprintable() or " " in glob:
            return f"{shown} cannot be the name of a {what}: it has a space in it"
        if what == "pool" and "@" in glob:
            return f"{shown} is an account: a pool is named by its domain"
        if (why := _problem_with_brackets(glob)) is not None:
            return f"{shown} is no wildcard: {why}"
    return None


def _problem_with_brackets(glob: str) -> str | None:
    """Each `[` needs its `]`, with something in between; otherwise it would stand for itself."""
    rest = glob
    while "[" in rest:
        inside = rest.partition("[")[2].removeprefix("!")
        end = inside.find("]", 1)
        if end < 0:
            return "its [ is never closed"
        rest = inside[end + 1 :]
    return None
