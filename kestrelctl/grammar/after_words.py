"""The jobs that a job waits for, in words: `12`, `12:failed`, `3-9:ended`, `last`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from kestrelctl.core.model.job.after import After, WantedEnd, problem_with_parents
from kestrelctl.errors import UsageError
from kestrelctl.grammar.id_ranges import LAST

_JOBS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
ENDINGS = tuple(each.value for each in WantedEnd)


def parse_after(words: Iterable[str], last: Callable[[], int]) -> tuple[After, ...]:
    """The jobs that some words name, in rising order.

    Args:
        last: the id of the latest job of whoever submits; asked for only if a word means it.

    Raises:
        UsageError: a word names none, or a job is named twice.
    """
    found = []
    for word in words:
        jobs, ending = split_ending(word)
        if jobs == LAST:
            job_id = last()
            found.append(After(job_id, job_id, ending))
            continue
        match = _JOBS.fullmatch(jobs)
        if match is None:
            raise UsageError(
                f"not a job to wait for: {word[:80]!r}",
                hint="write an id, a range or `last`, and the end it must come to: 12, 12:failed",
            )
        found.append(After(int(match[1]), int(match[2] or match[1]), ending))
    after = tuple(sorted(found, key=lambda each: each.first))
    problem = problem_with_parents(after)
    if problem is not None:
        raise UsageError("these jobs cannot be waited for", cause=problem)
    return after


def parse_after_each(word: str | None, last: Callable[[], int]) -> int:
    """The id of the job for whose tasks those of another wait, one for one; 0 for none.

    Args:
        last: as in `parse_after`.

    Raises:
        UsageError: it is no id.
    """
    if word is None:
        return 0
    if word.strip() == LAST:
        return last()
    if not re.fullmatch(r"\d{1,18}", word.strip()) or not int(word):
        hint = "write the id of one job, or `last`; how its tasks must end, --if-parent-fails says"
        raise UsageError(f"not a job whose tasks can be waited for: {word[:80]!r}", hint=hint)
    return int(word)


def split_ending(word: str) -> tuple[str, WantedEnd]:
    """Splits a word into what is waited for, and how it must end: `ok` unless the word says so.

    Raises:
        UsageError: there is no such way to end.
    """
    what, colon, ending = word.strip().rpartition(":")
    if not colon:
        return ending, WantedEnd.OK
    if ending not in ENDINGS:
        raise UsageError(
            f"not a way to end: {ending[:80]!r}", hint=f"it is one of {', '.join(ENDINGS)}"
        )
    return what.strip(), WantedEnd(ending)


def in_ranges(numbers: Sequence[tuple[int, WantedEnd]]) -> tuple[After, ...]:
    """Joins numbers, each with how it must end, into few ranges."""
    found: list[After] = []
    for number, ending in sorted(numbers):
        last = found[-1] if found else None
        if last is not None and last.last == number - 1 and last.ending is ending:
            found[-1] = After(last.first, number, ending)
        else:
            found.append(After(number, number, ending))
    return tuple(found)
