"""Attempts that end without a result: their worker went away, gave them back, or never had them."""

from __future__ import annotations

from kestrelctl.core.job import Job, Task
from kestrelctl.core.model import OnWorkerLost, TaskState
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker


def let_go(state: State, worker: Worker, now: float, *, cause: str, keep_waiting: bool) -> None:
    """Takes attempts away from a worker that went offline.

    Args:
        cause: one of `totals.LOSS_CAUSES`.
        keep_waiting: whether attempts of jobs with `on_worker_lost = wait` stay with it.
    """
    jobs: dict[Job, None] = {}
    for number, task in reversed(list(worker.held.items())):
        job = task.job
        if keep_waiting and job.spec.on_worker_lost is OnWorkerLost.WAIT and not job.cancelling:
            continue
        begun = task.charged
        worker.release(number)
        job.running -= 1
        jobs[job] = None
        if begun:
            lose(state, task, worker.jid, cause)
        else:
            put_back(state, task, worker.jid)
    worker.promote()
    for job in jobs:
        state.settle(job, now)


def lose(state: State, task: Task, jid: str, cause: str) -> None:
    """Counts a loss for a task whose worker went away, and requeues it or gives it up."""
    state.totals.losses[cause] += 1
    task.losses += 1
    task.lost_numbers += (task.number,)
    if task.losses >= task.job.spec.max_losses and not task.job.cancelling:
        state.finish(task, TaskState.LOST, jid, None)
        return
    if not task.job.cancelling:
        state.totals.retries["loss"] += 1
        state.remember(task, TaskState.WAITING, jid, None)
    put_back(state, task, jid)


def find_again(state: State, task: Task, jid: str) -> None:
    """Takes a loss back: the attempt survived, only the way to its worker was gone."""
    if task.number in task.lost_numbers:
        task.lost_numbers = tuple(n for n in task.lost_numbers if n != task.number)
        task.losses -= 1
        state.totals.losses_found_again += 1
        state.remember(task, TaskState.WAITING, jid, None)


def put_back(state: State, task: Task, jid: str) -> None:
    """Requeues a task that nobody has any more; in a cancelled job it is over instead."""
    if task.job.cancelling:
        state.finish(task, TaskState.CANCELLED, jid, None)
    else:
        task.job.requeue(task)
