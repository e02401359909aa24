"""Finds the jobs that starve, and the workers best kept for one of them. Pure, like the plan.

A task that asks for much finds no worker with enough room as long as tasks that ask for little take
whatever becomes free. Nobody else's room is counted for it: a worker is kept, which takes nothing
new but tasks of its shape, until it fits.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice

from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.gates import passing
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.members.availability import startable
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.supply import Supply


def starving(
    demand: Demand, supply: Supply, config: Config, now: float, besides: Container[Shape] = ()
) -> Iterator[Job]:
    """Jobs that have got nothing for `starving_seconds`, in the order of the queue.

    Only jobs of the highest priority that waits and that any worker could run are among them:
    others wait because that is what priorities are for. A job that waits for tokens of the pool, or
    whose user has as much as he may, is not short of room. Nothing is ever kept for guests: the
    pool's own come first.

    Args:
        besides: shapes to leave out; those that come in while jobs are read are left out from then.
    """
    long_ago = now - config.starving_seconds
    if all(job.waits_since > long_ago or job.served_at > long_ago for job in demand.jobs()):
        return
    priority: int | None = None
    for job in demand.in_order():
        if job.spec.guest is not None or (priority is not None and job.spec.priority < priority):
            break
        starves = max(job.waits_since, job.served_at) <= long_ago
        if job.spec.priority == priority and not starves:
            continue
        if job.shape in besides:
            continue
        span = job.shape.span
        may_go = min(passing(job)[0], demand.tokens.times_free(job.shape.tokens)) >= span
        if may_go and sum(1 for _ in islice(_able(job, supply), span)) == span:
            priority = job.spec.priority
            if starves:
                yield job


def best_to_keep(job: Job, supply: Supply, now: float) -> list[Worker]:
    """The workers that are expected to have room for a task of the job soonest: one, or as many as
    it spans.

    Returns:
        No worker if too few could be kept for it, or if enough have room: then room is not what it
        lacks.
    """
    ready: list[Worker] = []
    full: list[tuple[Worker, Claim]] = []
    for worker, claim in _able(job, supply):
        if not startable(claim, worker.free, worker.queued):
            full.append((worker, claim))
            continue
        ready.append(worker)
        if len(ready) == job.shape.span:
            return []
    full.sort(key=lambda entry: _seconds_until_room(entry[0], entry[1], now))
    best = [*ready, *(worker for worker, _ in full)][: job.shape.span]
    return best if len(best) == job.shape.span else []


def asks_for_nothing(worker: Worker) -> bool:
    """Whether a worker that pulls has nothing, and asks for nothing all the same."""
    return worker.wants == 0 and not worker.held


def _able(job: Job, supply: Supply) -> Iterator[tuple[Worker, Claim]]:
    """Workers that may take tasks, could run one of the job, and are kept for nobody.

    A worker that a neighbour lends is left out: it is many machines, and what is free of it is not
    on one of them. So is one that asks for nothing: all workers that are kept with it would wait
    for what it never takes.
    """
    for cls in supply.present():
        if cls.cls.distance_seconds:
            continue
        terms = cls.terms(job.shape)
        if isinstance(terms, Terms):
            for crowd in (cls.hungry, cls.parked):
                for worker in crowd.values():
                    if worker.kept_for is None and not asks_for_nothing(worker):
                        yield worker, terms.claim


def _seconds_until_room(worker: Worker, claim: Claim, now: float) -> float:
    """Estimates the seconds until enough of what runs there has ended."""
    free = dict(worker.free)
    ends = sorted(((_seconds_left(task, now), number) for number, task in worker.held.items()))
    for seconds, number in ends:
        attempt = worker.held[number].attempt
        if attempt is not None and attempt.phase is Phase.RUNNING:
            attempt.claim.release(free)
            if claim.fits(free):
                return seconds
    return ends[-1][0] if ends else 0.0


def _seconds_left(task: Task, now: float) -> float:
    """Estimates how long a task still runs: up to its job's mean; after that, as long again."""
    attempt, mean = task.attempt, task.job.mean_seconds
    ran = now - attempt.sent_at if attempt is not None else 0.0
    return mean - ran if mean is not None and mean > ran else ran


def room_kept(worker: Worker, claim: Claim) -> str:
    """Tells what a kept worker has free of what it is kept for: `w7, 3 cpus free of 8 cpus`."""
    wanted = claim.amounts
    asset = min(wanted, key=lambda name: worker.free.get(name, 0) / wanted[name], default="")
    if not asset:
        return worker.jid
    return f"{worker.jid}, {worker.free_of(asset)}"
