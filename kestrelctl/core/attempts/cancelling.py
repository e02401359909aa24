"""Ends jobs and tasks that nobody wants any more: drops what waits, and kills what runs."""

from __future__ import annotations

from kestrelctl.core.attempts.endings import finish, remember
from kestrelctl.core.attempts.pairs import feed_cancel
from kestrelctl.core.attempts.table import withdraw
from kestrelctl.core.effects import Kill
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.wording import plural
from kestrelctl.core.state import State


def cancel_all(state: State, job: Job) -> None:
    """Drops what waits of a job and kills what runs. It ends when the last end is reported.

    This also ends a hold, and a wait for other jobs: there is nothing more to hold back.
    """
    job.hold = None
    state.dependencies.release(job)
    if not job.cancelling:
        state.tell(job, -1, "cancelled", detail=plural(job.remaining, "task"))
        job.counts.cancelled += job.to_start
        state.totals.tasks_cancelled += job.to_start
        job.cancelling = True
    state.unpair(job)
    stop(state, list(job.live.values()))
    state.record(job.record())
    feed_cancel(state, job)
    state.touch_job(job)


def cancel_each(state: State, job: Job, tasks: list[Task]) -> None:
    """Drops or kills these tasks of a job, and records that they are cancelled."""
    for task in tasks:
        if not task.is_unwanted:
            state.tell(job, task.index, "cancelled")
            task.cancelled = True
            if task.attempt is not None:
                remember(state, task, TaskState.CANCELLED, task.attempt.worker, None)
    stop(state, tasks)
    state.touch_job(job)


def stop(state: State, tasks: list[Task]) -> None:
    """Kills those of these tasks that run; the others are over."""
    kill: dict[str, list[int]] = {}
    for task in tasks:
        attempt = task.attempt
        if attempt is not None and state.workers[attempt.worker].online:
            kill.setdefault(attempt.worker, []).append(attempt.number)
        else:
            withdraw(state, task)
            finish(state, task, TaskState.CANCELLED, "", None)
    for jid, numbers in kill.items():
        state.emit(Kill(worker=jid, numbers=numbers))
