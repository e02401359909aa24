"""Jobs of one file that name each other: in an order in which parents come first."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from kestrelctl.core.model.after import After, WantedEnd
from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import in_ranges, parse_after, split_ending
from kestrelctl.grammar.nearest import did_you_mean

_GLOB = frozenset("*?[")
#: The most jobs of a cycle that are named.
_MOST_SHOWN = 20


class Placed(msgspec.Struct, frozen=True):
    """A job of a file.

    Attributes:
        after: the jobs of the file that it waits for, by their places, which are lower than its.
        outside: those that it names by id.
    """

    name: str
    after: tuple[After, ...]
    outside: tuple[After, ...]


def arrange(after: Mapping[str, Sequence[str]]) -> list[Placed]:
    """Jobs in an order in which parents come first, and otherwise as they were given.

    Args:
        after: for each job the words that say what it waits for: a name of another, a glob such as
            `fit-*` for several, or an id of a job that is there already; each with its ending.

    Raises:
        UsageError: a word names nothing, or jobs wait for each other.
    """
    names = list(after)
    number = {name: place for place, name in enumerate(names)}
    globs: dict[str, list[int]] = {}
    parents: list[dict[int, WantedEnd]] = []
    outside: list[tuple[After, ...]] = []
    for name, words in after.items():
        mine: dict[int, WantedEnd] = {}
        ids = []
        for word in words:
            what, ending = split_ending(word)
            if what in number:
                found = [number[what]]
            elif _GLOB.intersection(what):
                if what not in globs:
                    globs[what] = [
                        place for each, place in number.items() if fnmatchcase(each, what)
                    ]
                found = globs[what]
            elif what.replace("-", "").isdigit():
                ids.append(word)
                continue
            else:
                found = []
            if not found:
                hint = did_you_mean(what, names) or "it names jobs of the file, or ids of others"
                raise UsageError(f"job {name} is after {what[:80]}, which is no job", hint=hint)
            for place in found:
                if mine.setdefault(place, ending) is not ending:
                    raise UsageError(f"job {name} wants two ends of job {names[place]}")
        parents.append(mine)
        outside.append(parse_after(ids))
    order = _sorted(names, parents)
    place_of = {old: new for new, old in enumerate(order)}
    ranges: dict[tuple[tuple[int, WantedEnd], ...], tuple[After, ...]] = {}
    placed = []
    for old in order:
        key = tuple(parents[old].items())
        if key not in ranges:
            ranges[key] = in_ranges([(place_of[parent], ending) for parent, ending in key])
        placed.append(Placed(names[old], ranges[key], outside[old]))
    return placed


def _sorted(names: Sequence[str], parents: Sequence[Mapping[int, WantedEnd]]) -> list[int]:
    """Numbers of jobs, each after its parents, else in rising order (Kahn, 1962)."""
    left = [len(mine) for mine in parents]
    children: list[list[int]] = [[] for _ in names]
    for child, mine in enumerate(parents):
        for parent in mine:
            children[parent].append(child)
    free = [job for job, count in enumerate(left) if not count]
    order = []
    while free:
        job = heapq.heappop(free)
        order.append(job)
        for child in children[job]:
            left[child] -= 1
            if not left[child]:
                heapq.heappush(free, child)
    if len(order) < len(names):
        _refuse_cycle(names, parents, left)
    return order


def _refuse_cycle(
    names: Sequence[str], parents: Sequence[Mapping[int, WantedEnd]], left: Sequence[int]
) -> None:
    """Raises UsageError with a path that comes back to where it began."""
    job = next(each for each, count in enumerate(left) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while job not in seen:
        seen[job] = len(path)
        path.append(job)
        job = next(parent for parent in parents[job] if left[parent])
    cycle = [*path[seen[job] :], job][::-1]
    shown = [names[each] for each in cycle]
    if len(shown) > _MOST_SHOWN:
        shown = [*shown[: _MOST_SHOWN - 1], "…", shown[-1]]
    raise UsageError(
        f"jobs wait for each other: {' → '.join(shown)}",
        cause="each is to start after the one before it",
        hint="take one `after` out",
    )
