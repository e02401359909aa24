"""Keeps workers for jobs that starve: the only place where a worker is kept, or let go."""

from __future__ import annotations

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.reservation import best_to_keep, starving
from kestrelctl.core.state import State

#: Of so many workers that may take tasks, one may be kept; of fewer, one.
WORKERS_PER_KEPT = 4
#: How often jobs are looked through for those that starve, in the time after which they do.
LOOKS = 10


def keep_workers(state: State, now: float) -> None:
    """Lets workers go that are kept in vain, and keeps others for jobs that starve."""
    for job, (worker, since) in list(state.kept.items()):
        if _over(state, job, worker, since):
            _let_go(state, job, worker)
    if now < state.next_starving_at or not state.demand:
        return
    state.next_starving_at = now + state.config.starving_seconds / LOOKS
    for job in starving(state.demand, state.supply, state.config, now):
        supplies = state.supply.classes()
        open_ = sum(len(cls.hungry) + len(cls.parked) for cls in supplies)
        if len(state.kept) >= max(1, open_ // WORKERS_PER_KEPT):
            return
        if job in state.kept:
            continue
        best = best_to_keep(job, state.supply, now)
        if best is not None:
            best.kept_for = job
            state.kept[job] = (best, now)


def _over(state: State, job: Job, worker: Worker, since: float) -> bool:
    """Whether a job has got something since, wants nothing any more, or has lost its worker."""
    supply = state.supply.of(worker) if state.workers.get(worker.jid) is worker else None
    gone = supply is None or not (
        (worker.jid in supply.hungry or worker.jid in supply.parked)
        and isinstance(supply.terms(job.shape), Terms)
    )
    if gone:
        state.next_starving_at = state.at
    if not state.tokens.times_free(job.shape.tokens):
        return True
    return gone or job.place is None or job.served_at >= since


def _let_go(state: State, job: Job, worker: Worker) -> None:
    del state.kept[job]
    worker.kept_for = None
    state.touch(worker)
