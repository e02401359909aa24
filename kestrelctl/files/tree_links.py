"""Symbolic links in a tree of files that goes elsewhere: which of them stay right there.

Names are below the top of the tree, with `/`; bytes that are not UTF-8 as `os.fsdecode` gives them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import dropwhile

#: A link is not followed through more links than this: it may lead in a circle.
_MOST_LINKS = 16


def leads_outside(name: str, link: str) -> bool:
    """Whether a link at a name of an archive may leave it.

    A link that goes up after a name may leave it, because the name may be another link.
    """
    parts = [part for part in link.split("/") if part not in ("", ".")]
    on = list(dropwhile(lambda part: part == "..", parts))
    return link.startswith("/") or ".." in on or len(parts) - len(on) > name.count("/")


def problem_with_link(name: str, links: Mapping[str, str], there: Set[str]) -> str:
    """Explains why a link does not go along; empty if it leads to what does, even through others.

    Nothing is asked of a file system, where somebody may change it meanwhile.

    Args:
        name: that of the link.
        links: where links point, by name.
        there: the names of all that goes along, as `with_directories` gives them.
    """
    for _ in range(_MOST_LINKS):
        on_the_way = next((each for each in _from_above(name) if each in links), None)
        if on_the_way is None:
            return "" if name in there else "is a link to what is not stored"
        link = links[on_the_way]
        if leads_outside(on_the_way, link):
            return "is a link that leads out of what is stored"
        below = name[len(on_the_way) :]
        name = posixpath.normpath(posixpath.join(posixpath.dirname(on_the_way), link) + below)
    return "is a link that leads through too many others"


def with_directories(names: Iterable[str]) -> frozenset[str]:
    """Adds to names all directories that they are in, and `.` for the top."""
    found = {"."}
    for name in names:
        while name and name not in found:
            found.add(name)
            name = posixpath.dirname(name)
    return frozenset(found)


def _from_above(name: str) -> Iterator[str]:
    """The directories that a name is in, the outermost first, and the name itself."""
    end = name.find("/")
    while end >= 0:
        yield name[:end]
        end = name.find("/", end + 1)
    yield name
