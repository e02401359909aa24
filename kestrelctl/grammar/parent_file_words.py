"""The words of `--input` that mean what tasks of another job left: `job:12`, `job:12=parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kestrelctl.core.model.files.parent_files import ParentFiles, not_waited_for
from kestrelctl.core.model.job.after import After
from kestrelctl.errors import UsageError
from kestrelctl.grammar.id_ranges import LAST

PREFIX = "job:"


def of_this_machine(words: Iterable[str]) -> list[str]:
    """The words that name files."""
    return [word for word in words if not word.startswith(PREFIX)]


def parents_named(words: Iterable[str]) -> list[str]:
    """The jobs whose files the other words mean, as the words call them."""
    return [_split(word)[0] for word in words if word.startswith(PREFIX)]


def parse_parent_files(
    words: Iterable[str],
    after_each: int,
    last: Callable[[], int],
    place_of: Callable[[str], int | None] = lambda name: None,
    each_place: int | None = None,
) -> tuple[ParentFiles, ...]:
    """Reads the words that mean files of jobs that are there, or that are submitted as one.

    Args:
        after_each: the job for whose tasks the tasks wait, one for one; 0 for none.
        last: the id of the latest job of whoever submits; asked for only if a word means it.
        place_of: the place of a job among those, by its name; None if it is none of them.
        each_place: the place of that job, if it is one of those.

    Raises:
        UsageError: a word names no job.
    """
    found = []
    for word in words:
        if not word.startswith(PREFIX):
            continue
        job, name = _split(word)
        place = place_of(job)
        if place is not None:
            each = place == each_place
            found.append(ParentFiles(name=name or job, job_id=place, placed=True, each=each))
        elif job == LAST:
            job_id = last()
            found.append(
                ParentFiles(name=name or f"job-{job_id}", job_id=job_id, each=job_id == after_each)
            )
        elif job.isascii() and job.isdigit() and len(job) <= 18:
            job_id = int(job)
            each = job_id == after_each
            found.append(ParentFiles(name=name or f"job-{job_id}", job_id=job_id, each=each))
        else:
            raise UsageError(
                f"no job whose files could be an input: {word[:80]!r}",
                hint=f"write {PREFIX}ID, {PREFIX}ID=NAME or {PREFIX}last; "
                f"a file of that name is ./{word[:40]}",
            )
    return tuple(found)


def waiting_for(after: Sequence[After], files: Sequence[ParentFiles]) -> tuple[After, ...]:
    """Adds the jobs of wanted files to what a job waits for, until they have ended well."""
    found = list(after)
    there = [each for each in files if not each.placed and not each.each]
    while (missing := not_waited_for(there, found, None)) is not None:
        named = any(each.first <= missing <= each.last for each in found)
        if named:
            raise UsageError(
                f"files of job {missing} are wanted, and it is waited for until it has failed",
                hint=f"--after {missing}, or --after {missing}:ended",
            )
        found.append(After(missing, missing))
    return tuple(sorted(found, key=lambda each: each.first))


def _split(word: str) -> tuple[str, str]:
    job, _, name = word.removeprefix(PREFIX).partition("=")
    return job.strip(), name
