"""Why a job's tasks wait, told for people."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kestrelctl.core.jobs.gates import passing, takeable
from kestrelctl.core.jobs.job import Job, Standing
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.refusal import NEVER_FITS, Reason, Refusal
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.ladder import refusal
from kestrelctl.core.scheduling.supply import Supply

#: With more tasks under way than this, nobody waits for them to be walked through.
MOST_LOOKED_AT = 100_000


class Group(msgspec.Struct, frozen=True):
    """Workers that refuse for the same reason."""

    workers: int
    example: str
    refusal: Refusal


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job's tasks wait.

    Attributes:
        job_reasons: what holds the job back whatever workers there are.
        groups: workers that refuse for the same reason, the closest fit first.
        could: how many workers could take a task at once.
        ever: whether any known worker could ever run one.
        tasks_ahead: waiting tasks of jobs that are at work and get what becomes free before it.
    """

    job_reasons: list[Refusal]
    groups: list[Group]
    could: int
    ever: bool
    tasks_ahead: int


def explain(
    job: Job,
    jobs: Iterable[Job],
    workers: Iterable[Worker],
    demand: Demand,
    supply: Supply,
    backoff_until: float | None,
    store_error: str,
    now: float,
) -> Explanation:
    """Holds a job against itself, the other jobs and every worker.

    Args:
        jobs, workers: all that the pool knows.
        backoff_until: when the next of its tasks in back-off may run again.
        store_error: why nothing is handed out to anybody; empty if it is.
    """
    refusals: dict[Refusal, list[str]] = {}
    could = online = 0
    for worker in workers:
        online += worker.online
        why = refusal(worker, supply.of(worker), job.shape, now)
        if why is None:
            could += 1
        else:
            refusals.setdefault(why, []).append(worker.jid)
    groups = [Group(len(jids), jids[0], why) for why, jids in refusals.items()]
    groups.sort(key=lambda group: -group.refusal.closeness)
    reasons = _job_reasons(job, backoff_until, now)
    if store_error:
        reasons.insert(0, Refusal(Reason.STORE_FAILING, found=store_error))
    if not online:
        reasons.append(Refusal(Reason.NO_WORKERS))
    return Explanation(
        job_reasons=reasons,
        groups=groups,
        could=could,
        ever=could > 0 or any(group.refusal.reason not in NEVER_FITS for group in groups),
        tasks_ahead=_tasks_ahead(job, jobs, demand),
    )


def _job_reasons(job: Job, backoff_until: float | None, now: float) -> list[Refusal]:
    found: list[Refusal] = []
    may_go, gate = passing(job)
    if job.cancelling:
        found.append(Refusal(Reason.CANCELLING))
    elif gate is Reason.MAX_RUNNING and not may_go:
        limit = f"at most {job.spec.max_running}"
        found.append(Refusal(gate, wanted=limit, found=f"{job.running}"))
    elif gate is not None and not may_go:
        found.append(Refusal(gate))
    tasks = job.live.values() if len(job.live) < MOST_LOOKED_AT else ()
    standings = [task.standing for task in tasks]
    delayed = standings.count(Standing.BACKOFF)
    if delayed:
        pause = max(0.0, (backoff_until or now) - now)
        found.append(
            Refusal(Reason.BACKOFF, found=f"{plural(delayed, 'task')}, the next in {pause:.1f} s")
        )
    unheard = standings.count(Standing.UNHEARD)
    if unheard:
        found.append(Refusal(Reason.RECOVERING, found=plural(unheard, "task")))
    if not job.waiting and not delayed and not unheard:
        found.append(Refusal(Reason.ALL_STARTED, found=f"{job.running} run"))
    return found


def _tasks_ahead(job: Job, jobs: Iterable[Job], demand: Demand) -> int:
    order = demand.order(job)
    return sum(
        takeable(other)
        for other in jobs
        if other.running and not other.cancelling and demand.order(other) < order
    )
