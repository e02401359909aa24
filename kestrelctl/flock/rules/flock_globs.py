"""Wildcards over the names of pools, users and groups, in any case: `*`, `?`, `[abc]`, `[!abc]`."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase

_WILD = re.compile(r"[*?\[]")
#: The characters that a text in quotes in an expression holds as they are.
_PLAIN = re.compile(r"[!#-\[\]-~]+")


def fits_name(globs: Collection[str], name: str) -> bool:
    """Whether one of the globs fits a name; any name fits if there are none."""
    return not globs or any(fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def fits_user(globs: Collection[str], user: str) -> bool:
    """Whether one of the globs fits an account; one without an `@` has to fit the name in it."""
    name = user.partition("@")[0]
    return not globs or any(fits_name((glob,), user if "@" in glob else name) for glob in globs)


def fits_anybody(globs: Collection[str]) -> bool:
    """Whether the globs fit every name."""
    return not globs or any(glob.strip("*") == "" for glob in globs)


def accounts_named(globs: Collection[str]) -> list[str] | None:
    """Returns the accounts that globs fit, in lower case; None if no list of texts says that."""
    if not all("@" in glob and not _WILD.search(glob) and _PLAIN.fullmatch(glob) for glob in globs):
        return None
    return sorted({glob.lower() for glob in globs})
