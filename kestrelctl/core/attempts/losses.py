"""What a worker that went away leaves behind."""

from __future__ import annotations

from kestrelctl.core.attempts.book import end
from kestrelctl.core.attempts.endings import lose
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.spec import OnWorkerLost
from kestrelctl.core.state import State


def let_go(state: State, worker: Worker, *, cause: str, keep_waiting: bool) -> None:
    """Takes attempts away from a worker that went offline.

    Args:
        cause: one of `totals.LOSS_CAUSES`.
        keep_waiting: whether attempts of jobs with `on_worker_lost = wait` stay with it.
    """
    for task in reversed(list(worker.held.values())):
        job = task.job
        if keep_waiting and job.spec.on_worker_lost is OnWorkerLost.WAIT and not job.cancelling:
            continue
        lose(state, task, end(state, worker, task), cause)
