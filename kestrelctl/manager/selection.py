"""Which jobs a user means: `last`, `all`, `3,5-9`."""

from __future__ import annotations

from kestrelctl.core.state import State
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.store.port import Store

MAX_SELECTED = 10_000


def select_jobs(selector: str, owner: str, state: State, store: Store) -> list[int]:
    """The ids that a selector names, ascending.

    Raises:
        UsageError: the selector has another form.
        NotFound: there is no such job.
    """
    text = selector.strip()
    if text == "all":
        return sorted(job.id for job in state.jobs.values() if job.owner == owner)
    if text == "last":
        own = [job.id for job in state.jobs.values() if job.owner == owner]
        own.extend(record.job_id for record in store.jobs(owner=owner, limit=1))
        if not own:
            raise NotFound(f"{owner} has submitted no job yet")
        return [max(own)]
    ids = parse_ids(text)
    known = {record.job_id for record in store.jobs(ids=ids, limit=len(ids))} | set(state.jobs)
    missing = [job_id for job_id in ids if job_id not in known]
    if missing:
        raise NotFound(f"there is no job {missing[0]}", hint="`kestrelctl job list` shows all jobs")
    return ids


def parse_ids(text: str) -> list[int]:
    """The numbers in `3,5-9`.

    Raises:
        UsageError: it is not of that form, or names too many.
    """
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(
                f"{text!r} selects no jobs", hint="write `last`, `all`, or ids like `3,5-9`"
            )
        low, high = int(first), int(last or first)
        if high < low:
            raise UsageError(f"the range {part.strip()} runs backwards", hint=f"write {high}-{low}")
        if high - low + len(found) >= MAX_SELECTED:
            raise UsageError(f"{text!r} selects more than {MAX_SELECTED:,} jobs")
        found.update(range(low, high + 1))
    return sorted(found)
