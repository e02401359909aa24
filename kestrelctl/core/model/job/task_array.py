"""The ids of the tasks of a job: runs of numbers, such as 1-3,5-9:2."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

import msgspec

#: Ids are JSON numbers, which many readers hold in a double.
MAX_ID = 1_000_000_000_000
#: More runs than that are better given as lines of a file.
MOST_RUNS = 1_000

#: (first id, step, how many ids).
Run = tuple[int, int, int]


class TaskArray(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tasks of a job, numbered from 0 to `count` - 1 by index.

    Attributes:
        count: of all tasks.
        first, step: the ids of the first run, which has all tasks that the further ones have not.
        further: the runs after it, in rising order.
    """

    count: int = 1
    first: int = 0
    step: int = 1
    further: tuple[Run, ...] = ()

    def runs(self) -> Iterator[Run]:
        """All runs, in order."""
        yield self.first, self.step, self.count - sum(n for _, _, n in self.further)
        yield from self.further

    def task_id(self, index: int) -> int:
        """The id a user sees for the task at `index`."""
        if not self.further:
            return self.first + index * self.step
        for first, step, n in self.runs():
            if index < n:
                return first + index * step
            index -= n
        raise IndexError(index)

    def indexes_of(self, task_ids: Iterable[int]) -> list[int | None]:
        """The indexes of the tasks with these ids, or None where the array has no such task."""
        runs = list(self.runs())
        firsts = [first for first, _, _ in runs]
        before = [0, *accumulate(n for _, _, n in runs)]
        found: list[int | None] = []
        for task_id in task_ids:
            place = max(0, bisect_right(firsts, task_id) - 1)
            first, step, n = runs[place]
            index, rest = divmod(task_id - first, step)
            found.append(before[place] + index if rest == 0 and 0 <= index < n else None)
        return found

    def ids(self) -> str:
        """The ids as `--array` takes them: `1-3,5-9:2`."""
        return ",".join(_text(*run) for run in self.runs())


def problem_with_ids(array: TaskArray) -> str | None:
    """Says what is wrong with the ids of an array, in words for its user; None if all is well."""
    if len(array.further) >= MOST_RUNS:
        return f"an array has at most {MOST_RUNS:,} ranges, not {len(array.further) + 1:,}"
    last = -MAX_ID - 1
    for first, step, n in array.runs():
        if n < 1:
            return "a range of an array has no task"
        if not 1 <= step <= MAX_ID:
            return f"the step of an array is 1 to {MAX_ID:,}, not {step}"
        if abs(first) > MAX_ID or abs(first + (n - 1) * step) > MAX_ID:
            return f"task ids go up to {MAX_ID:,}"
        if first <= last:
            return f"the ranges of an array do not rise: {first} comes after {last}"
        last = first + (n - 1) * step
    return None


def _text(first: int, step: int, n: int) -> str:
    if n == 1:
        return str(first)
    return f"{first}-{first + (n - 1) * step}" + (f":{step}" if step > 1 else "")
