"""Arranges the jobs of one file that name each other so that parents come first."""

from __future__ import annotations

import fnmatch
import heapq
from collections.abc import Callable, Mapping, Sequence

import msgspec

from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.errors import UsageError
from kestrelctl.grammar.after_words import (
    in_ranges,
    parse_after,
    parse_after_each,
    split_ending,
)
from kestrelctl.grammar.id_ranges import LAST
from kestrelctl.grammar.nearest import did_you_mean

_GLOB = frozenset("*?[")
#: The most jobs of a cycle that are named.
_MOST_SHOWN = 20


class Placed(msgspec.Struct, frozen=True):
    """A job of a file.

    Attributes:
        after: the jobs of the file that it waits for, by their places, which are lower than its.
        outside: those that it names by id.
        after_each: the place of the job of the file for whose tasks its tasks wait, one for one;
            None for none.
        outside_each: the id of such a job that is there already; 0 for none.
    """

    name: str
    after: tuple[After, ...]
    outside: tuple[After, ...]
    after_each: int | None = None
    outside_each: int = 0


def arrange(
    after: Mapping[str, Sequence[str]],
    last: Callable[[], int],
    after_each: Mapping[str, str] | None = None,
) -> list[Placed]:
    """Arranges jobs so that parents come first, and otherwise as they were given.

    Args:
        after: for each job the words that say what it waits for: a name of another, a glob such as
            `fit-*` for several, or an id of a job that is there already, or `last`; each with its
            ending.
        last: the id of the latest job that is there already, of whoever submits.
        after_each: for some jobs the one whose tasks its tasks wait for: a name, or an id.

    Raises:
        UsageError: a word names nothing, or jobs wait for each other.
    """
    names = list(after)
    pairs = after_each or {}
    number = {name: place for place, name in enumerate(names)}
    alike: dict[tuple[tuple[str, ...], str], _Alike] = {}
    of: list[_Alike] = []
    for place, (name, words) in enumerate(after.items()):
        found = alike.get(key := (tuple(words), pairs.get(name, "")))
        if found is None:
            found = alike[key] = _Alike(*_meant(name, words, names, number, last))
            found.pair_with(name, key[1], number, last)
        found.members.append(place)
        of.append(found)
    order = _sorted(names, list(alike.values()), of)
    place_of = {old: new for new, old in enumerate(order)}
    for found in alike.values():
        moved = [
            (place_of[parent], ending)
            for parent, ending in found.parents.items()
            if parent != found.each
        ]
        found.after = in_ranges(moved)
        found.each_place = None if found.each is None else place_of[found.each]
    return [
        Placed(names[old], same.after, same.outside, same.each_place, same.outside_each)
        for old, same in ((old, of[old]) for old in order)
    ]


class _Alike:
    """Jobs that wait for the same: their parents are looked at once, however many they are."""

    def __init__(self, parents: dict[int, WantedEnd], outside: tuple[After, ...]) -> None:
        self.parents = parents
        self.outside = outside
        self.members: list[int] = []
        self.left = len(parents)
        self.after: tuple[After, ...] = ()
        self.each: int | None = None
        self.each_place: int | None = None
        self.outside_each = 0

    def pair_with(
        self, name: str, word: str, number: Mapping[str, int], last: Callable[[], int]
    ) -> None:
        """Makes their tasks wait for those of another, one for one; it is one more parent to them.

        Args:
            name: the name of the first of them.
            word: names the other one; empty for none.
            last: as in `arrange`.
        """
        if not word:
            return
        self.each = number.get(word)
        if self.each is None and (word.isdigit() or word == LAST):
            self.outside_each = parse_after_each(word, last)
        elif self.each is None:
            hint = did_you_mean(word, list(number)) or "it names a job of the file, or an id"
            text = f"job {name} is after each task of {word[:80]}, which is no job"
            raise UsageError(text, hint=hint)
        elif self.each in self.parents:
            raise UsageError(
                f"job {name} waits for all of job {word} and for each of its tasks",
                hint="take one of `after` and `after-each` out",
            )
        else:
            self.parents[self.each] = WantedEnd.OK
            self.left += 1


def _meant(
    name: str,
    words: Sequence[str],
    names: Sequence[str],
    number: Mapping[str, int],
    last: Callable[[], int],
) -> tuple[dict[int, WantedEnd], tuple[After, ...]]:
    """The jobs that the words of a job name: those of the file by their numbers, and others."""
    mine: dict[int, WantedEnd] = {}
    ids = []
    for word in words:
        what, ending = split_ending(word)
        if what in number:
            found = [number[what]]
        elif _GLOB.intersection(what):
            found = [number[each] for each in fnmatch.filter(names, what)]
        elif what == LAST or what.replace("-", "").isdigit():
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
    return mine, parse_after(ids, last)


def _sorted(names: Sequence[str], groups: Sequence[_Alike], of: Sequence[_Alike]) -> list[int]:
    """Numbers of jobs, each after its parents, else in rising order (Kahn, 1962)."""
    behind: list[list[_Alike]] = [[] for _ in names]
    for group in groups:
        for parent in group.parents:
            behind[parent].append(group)
    free = [job for group in groups if not group.left for job in group.members]
    heapq.heapify(free)
    order = []
    while free:
        job = heapq.heappop(free)
        order.append(job)
        for group in behind[job]:
            group.left -= 1
            if not group.left:
                for child in group.members:
                    heapq.heappush(free, child)
    if len(order) < len(names):
        _refuse_cycle(names, of)
    return order


def _refuse_cycle(names: Sequence[str], of: Sequence[_Alike]) -> None:
    """Raises UsageError with a path that comes back to where it began."""
    job = next(each for each, group in enumerate(of) if group.left)
    seen: dict[int, int] = {}
    path: list[int] = []
    while job not in seen:
        seen[job] = len(path)
        path.append(job)
        job = next(parent for parent in of[job].parents if of[parent].left)
    cycle = [*path[seen[job] :], job][::-1]
    shown = [names[each] for each in cycle]
    if len(shown) > _MOST_SHOWN:
        shown = [*shown[: _MOST_SHOWN - 1], "…", shown[-1]]
    raise UsageError(
        f"jobs wait for each other: {' → '.join(shown)}",
        cause="each is to start after the one before it",
        hint="take one `after` out",
    )
