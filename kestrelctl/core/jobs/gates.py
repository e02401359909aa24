"""The gates that hold a job's waiting tasks back whatever workers there are, in order.

The queue, the plan, `job explain` and the metrics ask here. A new limit is the gate of a feature
(`core.features`).
"""

from __future__ import annotations

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.quota import counted
from kestrelctl.core.model.refusal import Reason


def takeable(job: Job) -> int:
    """Counts the tasks of a job that may be handed out now, as far as the job is concerned."""
    return _through_gates(job)[0]


def passing(job: Job) -> tuple[int, str | None]:
    """Counts the waiting tasks of a job that pass all gates and the quotas of its user.

    The plan, not the queue, asks what a user may have: it changes with every task of his, and his
    jobs are many.

    Returns:
        The number, and the reason of the first gate that lets the fewest pass; None if all pass.
    """
    least, why = _through_gates(job)
    for quota in job.sharer.quotas:
        room = quota.room(counted(job.shape.request, job.shape.tokens), least)
        if room < least:
            least, why = room, Reason.QUOTA if quota.settled else Reason.RECOVERING
    return least, why


def _through_gates(job: Job) -> tuple[int, str | None]:
    least = job.waiting
    why: str | None = None
    if not least:
        return 0, None  # no gate lets fewer pass
    whole = job.whole
    if whole.cancelling:
        return 0, Reason.CANCELLING
    if not whole.stored:
        return 0, Reason.NOT_STORED
    for gate in whole.gates:
        limit = gate.limit(whole)
        if limit is not None and limit < least:
            least, why = limit, gate.reason
    if least and whole.recovering and whole.spec.max_running is not None:
        return 0, Reason.RECOVERING  # nobody knows yet how many run
    if least and 1 < whole.spec.span != whole.waiting:  # they start together or not at all
        return 0, Reason.TOGETHER
    return least, why
