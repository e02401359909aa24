"""A pool's memory after a restart, from what is durable."""

from __future__ import annotations

from kestrelctl.core.config import Config
from kestrelctl.core.job import Phase, Task
from kestrelctl.core.model import WorkerAd
from kestrelctl.core.records import Snapshot
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker


def restore(config: Config, snapshot: Snapshot) -> State:
    """The state a manager starts with.

    Tasks that had been dispatched and did not end are in limbo: their workers may still run them,
    and say so when they are asked. The manager is not connected yet.
    """
    state = State(config, snapshot.epoch, snapshot.next_job_id)
    state.connected = False
    for unfinished in snapshot.jobs:
        record = unfinished.record
        job = state.restored_job(record)
        job.cancelling = record.cancelling
        if job.cancelling:
            job.counts.cancelled += job.never_started
        for index in unfinished.unfinished:
            task = job.live[index] = Task(job, index, Phase.LIMBO)
            task.failures, task.losses = unfinished.counters.get(index, (0, 0))
            task.concluded = unfinished.concluded.get(index, 0)
        state.totals.tasks_restored += job.remaining
        state.settle(job, record.submitted_at)
    for known in snapshot.workers:
        worker = Worker(known.worker, state.class_for(WorkerAd()), WorkerAd(), 0.0)
        worker.draining = known.draining
        state.workers[known.worker] = worker
    return state
