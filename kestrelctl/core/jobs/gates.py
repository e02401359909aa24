"""What holds a job's waiting tasks back whatever workers there are: one list, in order.

The queue, the plan, `job explain` and the metrics ask here. A new limit is a new gate.
"""

from __future__ import annotations

from collections.abc import Callable

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.quota import counted
from kestrelctl.core.model.refusal import Reason

#: How many of a job's tasks may be handed out now, as far as this gate is concerned; None: any.
Gate = Callable[[Job], int | None]


def _cancelling(job: Job) -> int | None:
    return 0 if job.cancelling else None


def _stored(job: Job) -> int | None:
    return None if job.stored else 0


def _held(job: Job) -> int | None:
    return None if job.hold is None else 0


def _parents(job: Job) -> int | None:
    parents = job.parents
    return None if parents is None or parents.let_go(job.spec.if_parent_fails) else 0


def _max_running(job: Job) -> int | None:
    limit = job.spec.max_running
    return None if limit is None else max(0, limit - job.running)


def _together(job: Job) -> int | None:
    """Members of a job that spans workers start together or not at all."""
    return 0 if 1 < job.spec.span != job.waiting else None


def _max_stored(job: Job) -> int | None:
    return 0 if job.stores_files and job.sharer.stored.is_full else None


GATES: tuple[tuple[Reason, Gate], ...] = (
    (Reason.CANCELLING, _cancelling),
    (Reason.NOT_STORED, _stored),
    (Reason.HELD, _held),
    (Reason.PARENTS, _parents),
    (Reason.MAX_STORED, _max_stored),
    (Reason.MAX_RUNNING, _max_running),
    (Reason.TOGETHER, _together),
)


def takeable(job: Job) -> int:
    """How many of a job's tasks may be handed out now, as far as the job itself is concerned."""
    return _through_gates(job)[0]


def passing(job: Job) -> tuple[int, Reason | None]:
    """How many of a job's waiting tasks pass all gates and the quotas of its user.

    What one user may have is asked of the plan, not of the queue: it changes with every task of
    his, and his jobs are many.

    Returns:
        The number, and the reason of the first gate that lets the fewest pass; None if all pass.
    """
    least, why = _through_gates(job)
    for quota in job.sharer.quotas:
        room = quota.room(counted(job.shape.request, job.shape.tokens), least)
        if room < least:
            least, why = room, Reason.QUOTA if quota.settled else Reason.RECOVERING
    return least, why


def _through_gates(job: Job) -> tuple[int, Reason | None]:
    least, why = job.waiting, None
    if not least:
        return 0, None  # no gate lets fewer pass
    whole = job.whole
    for reason, gate in GATES:
        limit = gate(whole)
        if limit is not None and limit < least:
            least, why = limit, reason
    return least, why
