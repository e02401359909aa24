"""The story of a job: the events that its results do not tell, up to a bounded number."""

from __future__ import annotations

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.records import MAX_HAPPENINGS, Happening

#: A worker's reason may be of any length; so many characters of it are kept.
MOST_DETAIL_CHARACTERS = 200


def happening(
    job: Job,
    index: int,
    what: str,
    *,
    at: float,
    number: int = 0,
    worker: str = "",
    cause: str = "",
    detail: str = "",
) -> Happening | None:
    """The record of something that happened to a job or a task; None once the story is full.

    The last record of a full story says that what follows is not kept.

    Args:
        index: the index of the task; -1 for the job as a whole.
        what: one of `records.HAPPENINGS`.
        cause: who or what was behind it.
    """
    job.happenings += 1
    if job.happenings > MAX_HAPPENINGS:
        return None
    if job.happenings == MAX_HAPPENINGS:
        return Happening(job_id=job.id, index=-1, at=at, what="dropped")
    return Happening(
        job_id=job.id,
        index=index,
        at=at,
        what=what,
        number=number,
        worker=worker,
        cause=cause,
        detail=detail[:MOST_DETAIL_CHARACTERS],
    )
