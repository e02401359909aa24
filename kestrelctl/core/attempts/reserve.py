"""Keeps workers for jobs that starve: the only place where a worker is kept, or let go."""

from __future__ import annotations

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.reservation import asks_for_nothing, best_to_keep, starving
from kestrelctl.core.state import State

#: One of so many workers that may take tasks may be kept; of fewer, one as well. One job that spans
#: workers at a time may keep as many beside these as it needs.
WORKERS_PER_KEPT = 4
#: A kept worker that has nothing, and asks for nothing for so long, is kept in vain. Less time may
#: pass between the end of its last task and the message in which it asks for more.
UNWILLING_SECONDS = 5.0
#: How often jobs are looked through for starving ones within the time after which they starve.
LOOKS = 10


def keep_workers(state: State, now: float) -> None:
    """Lets workers go that are kept in vain, and keeps others for jobs that starve."""
    for job, (workers, since) in list(state.kept.items()):
        if any(_over(state, job, worker, since, now) for worker in workers):
            _let_go(state, job)
    if now < state.next_starving_at or not state.demand:
        return
    state.next_starving_at = now + state.config.starving_seconds / LOOKS
    if _all_ask_alike(state):
        return
    left: int | None = None
    in_vain: set[Shape] = set()
    for job in starving(state.demand, state.supply, state.config, now, in_vain):
        if left is None:
            left = _may_be_kept(state)  # Most of the time nothing starves.
        if left <= 0:
            return
        if job in state.kept:
            continue
        if job.shape.span > 1 and any(other.shape.span > 1 for other in state.kept):
            continue  # Two such jobs could keep each other's workers.
        best = best_to_keep(job, state.supply, now)
        for worker in best:
            worker.kept_for = job
            state.supply.note_use(worker)
        if not best:
            in_vain.add(job.shape)  # whoever asks alike gets the same answer
        else:
            in_vain.clear()
            state.kept[job] = (best, now)
            left -= job.shape.span == 1


def _all_ask_alike(state: State) -> bool:
    """Whether no task can take a part of the room that another waits for: all known shapes ask for
    as much, on one worker each. Short tasks are not queued where others wait (`offer`).
    """
    request = state.demand.shapes[0].request
    return all(shape.request == request and shape.span == 1 for shape in state.demand.shapes)


def _may_be_kept(state: State) -> int:
    """Counts the workers that may still be kept for jobs that do not span any."""
    open_ = sum(len(cls.hungry) + len(cls.parked) for cls in state.supply.present())
    return max(1, open_ // WORKERS_PER_KEPT) - sum(job.shape.span == 1 for job in state.kept)


def _over(state: State, job: Job, worker: Worker, since: float, now: float) -> bool:
    """Whether a job has got something since, wants nothing any more, or has lost its worker.

    A worker that says hello anew, or asks for nothing, is lost, too.
    """
    supply = state.supply.of(worker) if state.workers.get(worker.jid) is worker else None
    gone = supply is None or not (
        (worker.jid in supply.hungry or worker.jid in supply.parked)
        and isinstance(supply.terms(job.shape), Terms)
        and worker.joined_at <= since
        and not (asks_for_nothing(worker) and worker.silence.is_stuck(now, UNWILLING_SECONDS))
    )
    if gone:
        state.next_starving_at = state.at
    if state.tokens.times_free(job.shape.tokens) < job.shape.span:
        return True
    return gone or job.place is None or job.served_at >= since


def _let_go(state: State, job: Job) -> None:
    workers, _ = state.kept.pop(job)
    for worker in workers:
        worker.kept_for = None
        state.touch(worker)
