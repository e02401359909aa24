"""Deals with what a worker that went away leaves behind."""

from __future__ import annotations

from collections.abc import Collection

from kestrelctl.core.attempts.endings import lose
from kestrelctl.core.attempts.table import end
from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.job import Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.state import State


def let_go(
    state: State,
    worker: Worker,
    *,
    cause: str,
    keep_waiting: bool,
    goes_on_with: Collection[int] = (),
) -> None:
    """Takes attempts away from a worker that went offline.

    If a task that is suspected of ending its workers ran in its process, nothing is held against
    the other tasks.

    Args:
        cause: one of `totals.LOSS_CAUSES`.
        keep_waiting: whether attempts of jobs with `on_worker_lost = wait` stay with it.
        goes_on_with: attempts that its next process has; they stay with it.
    """
    suspected = bool(suspect_at(state, worker))
    for task in reversed(list(worker.held.values())):
        job = task.job
        if goes_on_with and task.attempt is not None and task.attempt.number in goes_on_with:
            continue
        if keep_waiting and job.spec.on_worker_lost is OnWorkerLost.WAIT and not task.is_unwanted:
            continue
        innocent = suspected and not task.is_suspect
        lose(state, task, end(state, worker, task), cause, innocent=innocent)


def suspect_at(state: State, worker: Worker) -> str:
    """Finds the worker, in the process of a lost one, at which a suspected task runs, or ran when
    the first of these workers was lost; empty if there is none.

    A task that ends its process ends all workers in it.
    """
    process = worker.silence.process
    if not process.suspect_at:
        if any(task.is_suspect for task in _running(worker)):
            process.suspect_at = worker.jid
        else:
            attempts = (task.attempt for task in suspects_in(state, worker))
            process.suspect_at = next((each.worker for each in attempts if each is not None), "")
    return process.suspect_at


def suspects_in(state: State, worker: Worker) -> list[Task]:
    """The suspected tasks that run in a worker's process."""
    process = worker.silence.process
    process.suspects = [
        task
        for task in process.suspects
        if task.attempt is not None
        and state.workers[task.attempt.worker].silence.process is process
    ]
    return process.suspects


def lost_elsewhere(worker: Worker) -> bool:
    """Whether a worker runs a task that was lost at another before: the task may be to blame.

    No task is to blame for the loss of a neighbour.
    """
    return any(
        task.lost_at not in ("", worker.jid) and not is_neighbour(task.lost_at)
        for task in _running(worker)
    )


def _running(worker: Worker) -> list[Task]:
    return [
        task
        for task in worker.held.values()
        if task.attempt is not None and task.attempt.phase is Phase.RUNNING
    ]
