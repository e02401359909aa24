"""Deals with what a worker that went away leaves behind."""

from __future__ import annotations

from collections.abc import Collection

from kestrelctl.core.attempts.endings import lose
from kestrelctl.core.attempts.suspects import suspect_at
from kestrelctl.core.attempts.table import end
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.spec import OnWorkerLost
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
