"""A set of indexes of tasks, as ranges: its cost grows with its gaps, not with its members."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

#: The first and the last index of a range; both belong to it.
IndexRange = tuple[int, int]

#: Ranges taken from the front are dropped when they are so many, and half of all.
_MANY_GONE = 64


class IndexRanges:
    """Indexes, kept as ranges that do not touch, in rising order.

    Adding next to what is there, at the end or anywhere, costs two binary searches; taking from the
    front costs nothing more for the ranges behind it. A range takes 16 bytes.

    Attributes:
        total: how many indexes there are.
    """

    __slots__ = ("_firsts", "_gone", "_lasts", "total")

    def __init__(self, ranges: Iterable[IndexRange] = ()) -> None:
        self._firsts = array("q")
        self._lasts = array("q")
        self._gone = 0  # so many ranges at the front have been taken
        self.total = 0
        for first, last in ranges:
            self.add(first, last)

    def __bool__(self) -> bool:
        return self.total > 0

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self._firsts, index, self._gone) - 1
        return place >= self._gone and index <= self._lasts[place]

    def __iter__(self) -> Iterator[IndexRange]:
        for place in range(self._gone, len(self._firsts)):
            yield self._firsts[place], self._lasts[place]

    def add(self, first: int, last: int) -> int:
        """Adds all from `first` to `last`; returns how many of them are new."""
        if last < first:
            return 0
        firsts, lasts = self._firsts, self._lasts
        # The ranges that it overlaps or touches.
        low = bisect_left(lasts, first - 1, self._gone)
        high = bisect_right(firsts, last + 1, low)
        had = 0
        if low == high:
            firsts.insert(low, first)
            lasts.insert(low, last)
        else:
            had = sum(lasts[place] - firsts[place] + 1 for place in range(low, high))
            first, last = min(first, firsts[low]), max(last, lasts[high - 1])
            firsts[low], lasts[low] = first, last
            del firsts[low + 1 : high], lasts[low + 1 : high]
        new = last - first + 1 - had
        self.total += new
        return new

    def discard(self, first: int, last: int) -> int:
        """Takes out all from `first` to `last`; returns how many of them were there."""
        low, high = self._overlapped(first, last)
        if low == high:
            return 0
        firsts, lasts = self._firsts, self._lasts
        had = sum(lasts[place] - firsts[place] + 1 for place in range(low, high))
        left = [(firsts[low], first - 1)] if firsts[low] < first else []
        if lasts[high - 1] > last:
            left.append((last + 1, lasts[high - 1]))
        firsts[low:high] = array("q", [each for each, _ in left])
        lasts[low:high] = array("q", [each for _, each in left])
        out = had - sum(end - begin + 1 for begin, end in left)
        self.total -= out
        return out

    def take(self, n: int) -> list[IndexRange]:
        """Takes out the n lowest, or all if there are fewer."""
        taken: list[IndexRange] = []
        firsts, lasts = self._firsts, self._lasts
        while n > 0 and self._gone < len(firsts):
            first = firsts[self._gone]
            last = min(lasts[self._gone], first + n - 1)
            taken.append((first, last))
            n -= last - first + 1
            self.total -= last - first + 1
            if last == lasts[self._gone]:
                self._gone += 1
            else:
                firsts[self._gone] = last + 1
        if self._gone > _MANY_GONE and 2 * self._gone > len(firsts):
            del firsts[: self._gone], lasts[: self._gone]
            self._gone = 0
        return taken

    def within(self, first: int, last: int) -> list[IndexRange]:
        """The ranges of the indexes from `first` to `last` that are there."""
        low, high = self._overlapped(first, last)
        return [
            (max(first, self._firsts[place]), min(last, self._lasts[place]))
            for place in range(low, high)
        ]

    def gaps(self, first: int, last: int) -> list[IndexRange]:
        """The ranges of the indexes from `first` to `last` that are not there."""
        found: list[IndexRange] = []
        for begin, end in self.within(first, last):
            if first < begin:
                found.append((first, begin - 1))
            first = end + 1
        if first <= last:
            found.append((first, last))
        return found

    def _overlapped(self, first: int, last: int) -> tuple[int, int]:
        """The places of the ranges that share something with this one: from, and up to."""
        low = bisect_left(self._lasts, first, self._gone)
        return low, max(low, bisect_right(self._firsts, last, low))


def as_ranges(indexes: Iterable[int]) -> list[IndexRange]:
    """Indexes in rising order, as few ranges."""
    found: list[IndexRange] = []
    for index in indexes:
        if found and found[-1][1] == index - 1:
            found[-1] = (found[-1][0], index)
        else:
            found.append((index, index))
    return found
