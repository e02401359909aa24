"""The jobs and tasks that a command is about: `last`, `all`, `3,5-9`, or a name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kestrelctl.core.model.job.task_array import MAX_ID, Run, TaskArray, problem_with_ids
from kestrelctl.errors import UsageError

#: `int` refuses thousands of digits.
_RANGE = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?")
#: A number with commas between thousands, of which a part cannot be an id: `1,000`, `12,345,067`.
_THOUSANDS = re.compile(r"(?<!\d)[1-9]\d{0,2}(?:,\d{3})*,0\d{2}(?:,\d{3})*(?!\d)")
_MOST_IDS = 100_000
#: The words for the latest job of whoever asks, and for all of his that a command is about.
LAST = "last"
ALL = "all"


def with_commas(text: str) -> str:
    """Words with commas between: `3, 5-9` and `3 5-9` are `3,5-9`, and `1 2` is never 12."""
    return ",".join(filter(None, (word.strip(",") for word in text.split())))


def refuse_thousands(text: str) -> None:
    """Raises UsageError for a number with commas between thousands.

    `1,001` would be 1, twice: `job cancel 1,001` cancelled job 1.
    """
    found = _THOUSANDS.search(text)
    if found is not None:
        one, parts = found[0].replace(",", ""), found[0].split(",")
        several = ",".join(dict.fromkeys(str(int(n)) for n in parts))
        raise UsageError(
            f"is {found[0]} one number, or several?", hint=f"write {one}, or {several}"
        )


def parse_jobs(text: str) -> str:
    """A selection of jobs, checked, in the form that the pool takes: commas and no blanks.

    Raises:
        UsageError: it is none.
    """
    words = with_commas(text).split(",")
    numbers = [word for word in words if word not in (LAST, ALL)]
    if numbers:
        _ranges(",".join(numbers), "jobs")
    return ",".join(words)


def is_moving(jobs: str) -> bool:
    """Whether a selection may mean other jobs when it is sent again."""
    return jobs.startswith("name:") or not {LAST, ALL}.isdisjoint(jobs.split(","))


def ranges_of(jobs: str) -> str:
    """The words of a selection that may mean many jobs, `all` and ranges; empty without any."""
    return ",".join(word for word in jobs.split(",") if word == ALL or "-" in word)


def id_text(ids: Iterable[int]) -> str:
    """Writes ids that rise as a selection: `3,5-9`; empty for none."""
    from kestrelctl.core.model.index_ranges import as_ranges  # most commands write none

    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in as_ranges(ids)
    )


def jobs_or_name(jobs: str | None, name: str) -> str:
    """A selection of jobs by ids, or of one's own by name.

    Raises:
        UsageError: it is not exactly one of the two.
    """
    if (jobs is None) == (not name):
        raise UsageError(
            "which jobs?", hint="name them: 7, 3-5, `last` or `all`; or --name GLOB, one of the two"
        )
    return jobs or f"name:{name}"


def parse_job(text: str) -> str:
    """One job: `last` or its id.

    Raises:
        UsageError: it is neither.
    """
    text = text.strip()
    if text != LAST and not (text.isascii() and text.isdigit()):
        raise UsageError(f"not a job: {text!r}", hint="give one id, e.g. 7, or `last`")
    return text


def parse_tasks(text: str) -> list[int]:
    """Task ids in `17` or `3,5-9`, in that order.

    Raises:
        UsageError: they are none, too large, or too many.
    """
    ranges = _ranges(with_commas(text), "tasks")
    largest = max(last for _, last in ranges)
    if largest > MAX_ID:
        raise UsageError(f"there is no task {largest}", cause=f"task ids go up to {MAX_ID:,}")
    if sum(last - first + 1 for first, last in ranges) > _MOST_IDS:
        raise UsageError(
            f"more than {_MOST_IDS:,} tasks selected", hint="leave the tasks out for all"
        )
    return [id for first, last in ranges for id in range(first, last + 1)]


def _ranges(text: str, what: str) -> list[tuple[int, int]]:
    refuse_thousands(text)
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            words = ", `last` or `all`" if what == "jobs" else ""
            raise UsageError(
                f"not a selection of {what}: {part or text!r}", hint=f"write 3 or 3,5-9{words}"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise UsageError(
                f"the range {part} runs backwards", hint=f"write {last}-{first} instead"
            )
        found.append((first, last))
    return found


#: `int` refuses thousands of digits.
_ARRAY = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?(?::(\d{1,20}))?")


def parse_array(text: object) -> TaskArray:
    """Reads `1-1000`, `0-9:3` (0, 3, 6, 9), `5` (the one task 5) or several of them, `1-3,5-7`.

    It reads them as Slurm and HyperQueue do; they may come in any order.

    Raises:
        UsageError: it is none of these, or an id is there twice.
    """
    text = with_commas(str(text))
    refuse_thousands(text)
    runs = sorted(_run(part, text) for part in text.split(","))
    (first, step, _), *further = runs
    array = TaskArray(
        count=sum(n for _, _, n in runs), first=first, step=step, further=tuple(further)
    )
    problem = problem_with_ids(array)
    if problem is not None:
        raise UsageError(f"not an array of tasks: {text!r}", cause=problem)
    return array


def _run(part: str, text: str) -> Run:
    match = _ARRAY.fullmatch(part)
    if match is None:
        hint = "write 1-1000, 0-9:3 for every third, or 1-3,5-7; for a list: --each-line FILE"
        raise UsageError(f"not an array of tasks: {text!r}", hint=hint)
    first, last = int(match[1]), int(match[2] or match[1])
    step = int(match[3] or 1)
    if match[3] and not match[2]:
        meant = f"{first}-{step}" if first <= step else "1-10"
        raise UsageError(
            f"{part} is no range", hint=f"write --array {meant}; a step comes after it: 1-9:2"
        )
    if last < first:
        raise UsageError(
            f"the array {part} runs backwards", hint=f"write --array {last}-{first} instead"
        )
    if step < 1:
        raise UsageError(f"the array {part} never moves on", hint="the step after `:` is 1 or more")
    n = (last - first) // step + 1
    return first, step if n > 1 else 1, n
