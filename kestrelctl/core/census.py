"""A pool at one moment, in numbers: one walk over its workers, one over its jobs."""

from __future__ import annotations

from collections import Counter

import msgspec

from kestrelctl.core.assets import Amounts
from kestrelctl.core.job import Job, Phase
from kestrelctl.core.matching import Reason, Shape
from kestrelctl.core.state import State
from kestrelctl.core.worker import WORKER_STATES, WorkerClass, worker_state

#: Why tasks wait that belong to a job which is not durable yet.
NOT_STORED = "not-stored"
WAITING_REASONS = (
    *(reason.value for reason in Reason if reason is not Reason.ALL_STARTED),
    NOT_STORED,
)


class WorkerNumbers(msgspec.Struct, frozen=True):
    """One worker of the manager's list."""

    jid: str
    online: bool
    running: int
    cpus: float
    state: str
    streak: int  #: fast failures in a row


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool has and does.

    Attributes:
        waiting: tasks that no worker has, by reason; together those that wait.
        running: tasks that run, as far as the manager can tell.
        queued: tasks that wait at a worker behind others.
        owners: (waiting, at a worker) tasks of each owner with an active job.
        capacity, free: of the workers that are online.
        skew_seconds: the largest difference of a clock, either way; None if none is known.
    """

    jobs_active: int
    jobs_cancelling: int
    waiting: Counter[str]
    running: int
    queued: int
    owners: dict[str, tuple[int, int]]
    workers_by_state: Counter[str]
    workers: list[WorkerNumbers]
    capacity: Amounts
    free: Amounts
    skew_seconds: float | None


def census(state: State, now: float) -> Census:
    """Counts everything. A few milliseconds for thousands of workers."""
    by_state: Counter[str] = Counter(dict.fromkeys(WORKER_STATES, 0))
    by_class: dict[WorkerClass, Counter[str]] = {}
    workers: list[WorkerNumbers] = []
    capacity: Counter[str] = Counter(cpus=0, memory=0)
    free: Counter[str] = Counter(cpus=0, memory=0)
    running = queued = 0
    skew: float | None = None
    for worker in state.workers.values():
        word = worker_state(worker, now)
        by_state[word] += 1
        counted = by_class.get(worker.cls)
        if counted is None:
            counted = by_class[worker.cls] = Counter()
        counted[word] += 1
        workers.append(
            WorkerNumbers(
                worker.jid, worker.online, worker.charged, worker.ad.cpus, word, worker.streak
            )
        )
        running += worker.charged
        queued += worker.behind
        if worker.online:
            for name, amount in worker.free.items():
                free[name] += amount
            found = worker.skew.seconds
            if found is not None:
                skew = max(abs(found), skew or 0.0)
    for cls in by_class:
        for name, amount in cls.capacity.items():
            capacity[name] += amount * cls.members
    owners: dict[str, tuple[int, int]] = {}
    for job in state.jobs.values():
        waiting, held = owners.get(job.owner, (0, 0))
        owners[job.owner] = (waiting + job.remaining - job.running, held + job.running)
    cancelling = sum(job.cancelling for job in state.jobs.values())
    return Census(
        jobs_active=len(state.jobs) - cancelling,
        jobs_cancelling=cancelling,
        waiting=_waiting(state, by_class),
        running=running,
        queued=queued,
        owners=owners,
        workers_by_state=by_state,
        workers=workers,
        capacity=dict(capacity),
        free=dict(free),
        skew_seconds=skew,
    )


def _waiting(state: State, by_class: dict[WorkerClass, Counter[str]]) -> Counter[str]:
    """Tasks that no worker has, by what holds them back."""
    found: Counter[str] = Counter(dict.fromkeys(WAITING_REASONS, 0))
    delayed: Counter[int] = Counter()
    for job_id, index in {(job_id, index) for _, job_id, index in state.delayed}:
        known = state.jobs.get(job_id)
        task = known.live.get(index) if known else None
        if task is not None and task.phase is Phase.DELAYED:
            delayed[job_id] += 1
    shapes: dict[Shape, str] = {}
    for job in state.jobs.values():
        backoff = delayed[job.id]
        limbo = len(job.live) - job.running - len(job.requeued) - backoff
        found[Reason.BACKOFF] += backoff
        found[Reason.RECOVERING] += limbo
        for reason, tasks in _ready(state, job):
            if reason is None:
                reason = shapes.get(job.shape)
                if reason is None:
                    reason = shapes[job.shape] = _refusal(state, job.shape, by_class)
            found[reason] += tasks
    return found


def _ready(state: State, job: Job) -> list[tuple[str | None, int]]:
    """The tasks of a job that wait for nothing of their own; None if only for a worker."""
    waiting = job.waiting
    if not waiting:
        return []
    if job.cancelling:
        return [(Reason.CANCELLING, waiting)]
    if not job.stored:
        return [(NOT_STORED, waiting)]
    if not state.connected:
        return [(Reason.RECOVERING, waiting)]
    takeable = job.takeable()
    return [(Reason.MAX_RUNNING, waiting - takeable), (None, takeable)]


def _refusal(state: State, shape: Shape, by_class: dict[WorkerClass, Counter[str]]) -> str:
    """Why tasks of a shape wait for a worker: the most hopeful of the workers' reasons."""
    if not state.online:
        return Reason.NO_WORKERS
    fitting: Counter[str] = Counter()
    nearest: tuple[float, str] = (-1.0, Reason.NO_WORKERS)
    for cls, counted in by_class.items():
        refusal = cls.answer(shape)[0]
        if refusal is None:
            fitting += counted
        elif cls.members:
            nearest = max(nearest, (refusal.closeness, refusal.reason))
    if fitting["busy"] or fitting["idle"]:
        return Reason.BUSY
    if fitting["quarantined"]:
        return Reason.QUARANTINED
    if fitting["draining"]:
        return Reason.DRAINING
    return Reason.OFFLINE if fitting else nearest[1]
