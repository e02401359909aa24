"""The ids of the tasks of a job, in words: `1-1000`, `0-9:3`, `1-3,5-7`."""

from __future__ import annotations

import re

from kestrelctl.core.model.job.task_array import Run, TaskArray, problem_with_ids
from kestrelctl.errors import UsageError
from kestrelctl.grammar.id_ranges import refuse_thousands, with_commas

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
