"""A pool at one moment, in numbers: one walk over its workers, one over its jobs."""

from __future__ import annotations

from collections import Counter

import msgspec

from kestrelctl.core.attempts.endings import in_backoff
from kestrelctl.core.jobs.gates import passing
from kestrelctl.core.members.availability import WORKER_STATES, worker_state
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.assets import Amounts
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.scheduling.ladder import shape_reason
from kestrelctl.core.scheduling.plan import plan
from kestrelctl.core.scheduling.supply import ClassSupply
from kestrelctl.core.state import State

WAITING_REASONS = tuple(reason.value for reason in Reason if reason is not Reason.ALL_STARTED)


class WorkerNumbers(msgspec.Struct, frozen=True):
    """One worker of the manager's list."""

    jid: str
    online: bool
    running: int
    capacity: Amounts
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


def take_census(state: State, now: float) -> Census:
    """Counts everything. A few milliseconds for thousands of workers."""
    by_class: dict[WorkerClass, Counter[str]] = {}
    workers: list[WorkerNumbers] = []
    capacity: Counter[str] = Counter(cpus=0, memory=0)
    free: Counter[str] = Counter(cpus=0, memory=0)
    running = queued = 0
    skew: float | None = None
    for jid, worker in state.workers.items():
        word, cls, runs = worker_state(worker, now), worker.cls, worker.running
        counted = by_class.get(cls)
        if counted is None:
            counted = by_class[cls] = Counter()
        counted[word] += 1
        workers.append(WorkerNumbers(jid, worker.online, runs, cls.capacity, word, worker.streak))
        running += runs
        queued += len(worker.held) - runs
        if worker.online:
            for name, amount in worker.free.items():
                free[name] += amount
            found = worker.skew.seconds
            if found is not None:
                skew = max(abs(found), skew or 0.0)
    by_state = Counter(dict.fromkeys(WORKER_STATES, 0))
    for counted in by_class.values():
        by_state.update(counted)
    states = {state.supply.of_class(cls): counted for cls, counted in by_class.items()}
    for supply in states:
        for name, amount in supply.cls.capacity.items():
            capacity[name] += amount * supply.members
    owners: dict[str, tuple[int, int]] = {}
    for job in state.jobs.values():
        waiting, held = owners.get(job.owner, (0, 0))
        owners[job.owner] = (waiting + job.remaining - job.running, held + job.running)
    cancelling = sum(job.cancelling for job in state.jobs.values())
    return Census(
        jobs_active=len(state.jobs) - cancelling,
        jobs_cancelling=cancelling,
        waiting=_waiting(state, states, now),
        running=running,
        queued=queued,
        owners=owners,
        workers_by_state=by_state,
        workers=workers,
        capacity=dict(capacity),
        free={name: free[name] for name in capacity},
        skew_seconds=skew,
    )


def _waiting(state: State, states: dict[ClassSupply, Counter[str]], now: float) -> Counter[str]:
    """Tasks that no worker has, by what holds them back."""
    found: Counter[str] = Counter(dict.fromkeys(WAITING_REASONS, 0))
    backoffs = _backoffs(state)
    held_back: Reason | None = None
    if state.store_error:
        held_back = Reason.STORE_FAILING
    elif not state.connected:
        held_back = Reason.RECOVERING
    for job in state.jobs.values():
        backoff = backoffs[job.id]
        found[Reason.BACKOFF] += backoff
        found[Reason.RECOVERING] += len(job.live) - job.running - len(job.ready) - backoff
        takeable, gate = passing(job)
        if gate is not None:
            found[gate] += job.waiting - takeable
        # What a plan would hand out this very moment has no worker yet either.
        found[held_back or Reason.BUSY] += takeable
    if held_back is None:
        unmet = plan(state.demand, state.supply, state.config, now).unmet()
        for shape, tasks in unmet.items():
            found[Reason.BUSY] -= tasks
            found[shape_reason(shape, state.supply, states)] += tasks
    return found


def _backoffs(state: State) -> Counter[int]:
    """How many tasks of each job wait for their next attempt."""
    found: Counter[int] = Counter()
    for entry in set(state.backoffs):
        task = in_backoff(state, entry)
        if task is not None:
            found[task.job.id] += 1
    return found
