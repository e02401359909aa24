"""Why a job's tasks wait: the same refusals that dispatch acts on, gathered for people."""

from __future__ import annotations

import msgspec

from kestrelctl.core.assets import times_fitting
from kestrelctl.core.job import Job, Phase
from kestrelctl.core.matching import Reason, Refusal, describe
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker


class Group(msgspec.Struct, frozen=True):
    """Workers that refuse for the same reason."""

    workers: int
    example: str
    refusal: Refusal


def job_reasons(state: State, job: Job, now: float) -> list[Refusal]:
    """What holds a job back whatever workers there are."""
    found: list[Refusal] = []
    if job.cancelling:
        found.append(Refusal(Reason.CANCELLING))
    limit = job.spec.max_running
    if limit is not None and job.waiting and job.running >= limit:
        found.append(Refusal(Reason.MAX_RUNNING, wanted=f"at most {limit}", found=f"{job.running}"))
    phases = [task.phase for task in job.live.values()] if len(job.live) < 100_000 else []
    delayed = phases.count(Phase.DELAYED)
    if delayed:
        soonest = min((when for when, job_id, _ in state.delayed if job_id == job.id), default=now)
        wait = max(0.0, soonest - now)
        found.append(Refusal(Reason.BACKOFF, found=f"{delayed} tasks, the next in {wait:.1f} s"))
    limbo = phases.count(Phase.LIMBO)
    if limbo:
        found.append(Refusal(Reason.RECOVERING, found=f"{limbo} tasks"))
    if not job.waiting and not delayed and not limbo:
        found.append(Refusal(Reason.ALL_STARTED, found=f"{job.running} run"))
    if not state.online:
        found.append(Refusal(Reason.NO_WORKERS))
    return found


def tasks_ahead(state: State, job: Job) -> int:
    """Waiting tasks of jobs that are at work and get whatever becomes free before this one."""
    return sum(
        other.takeable()
        for other in state.jobs.values()
        if other.key < job.key and other.running and not other.cancelling
    )


def refusal_of(worker: Worker, job: Job, now: float) -> Refusal | None:
    """Why this worker takes no task of the job now; None if it could."""
    never = worker.cls.answer(job.shape)[0]
    if never is not None:
        return never
    if not worker.online or not worker.synced:
        return Refusal(Reason.OFFLINE, closeness=0.7)
    if worker.draining or worker.leaving:
        return Refusal(Reason.DRAINING, closeness=0.8)
    if worker.quarantined_until > now:
        wait = f"{worker.quarantined_until - now:.0f} s more"
        return Refusal(Reason.QUARANTINED, found=wait, closeness=0.85)
    if times_fitting(job.shape.request, worker.free):
        return None
    asset, amount = min(
        job.shape.request.items(), key=lambda entry: worker.free.get(entry[0], 0) / entry[1]
    )
    free = worker.free.get(asset, 0)
    return Refusal(
        Reason.BUSY,
        wanted=describe(asset, amount),
        found=f"{describe(asset, free)} free of {describe(asset, worker.cls.capacity[asset])}",
        closeness=0.9 + 0.1 * free / amount,
    )


def explain(state: State, job: Job, now: float) -> tuple[list[Group], int, bool]:
    """Holds a job against every worker.

    Returns:
        Groups of workers with the same reason, the closest fit first; how many workers could take a
        task at once; whether any known worker could ever run one.
    """
    groups: dict[Refusal, list[str]] = {}
    could = 0
    ever = False
    for worker in state.workers.values():
        refusal = refusal_of(worker, job, now)
        if refusal is None:
            could += 1
            ever = True
            continue
        ever = ever or refusal.reason not in (Reason.MISSING_TAGS, Reason.TOO_SMALL)
        groups.setdefault(refusal, []).append(worker.jid)
    found = [Group(len(jids), jids[0], refusal) for refusal, jids in groups.items()]
    found.sort(key=lambda group: -group.refusal.closeness)
    return found, could, ever
