"""Jobs that span workers: their tasks, members of one program, end together or all run again."""

from __future__ import annotations

from kestrelctl.core.attempts.cancelling import cancel_all
from kestrelctl.core.attempts.endings import finish, put_back
from kestrelctl.core.attempts.table import end, move_away
from kestrelctl.core.effects import Acknowledge, Kill
from kestrelctl.core.handlers.reporting import accept
from kestrelctl.core.jobs.job import FAILED_MEMBER, Job, Standing, Task
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.state import State


def settle_members(state: State, job: Job) -> None:
    """Looks at the members of a job of which something has changed.

    If all have ended well, their results are accepted. If one has no attempt any more, the others
    are stopped, and they start again together; so is a member that was lost and comes back
    meanwhile. If one will never run again, none does.
    """
    hopeless = job.counts.total() or any(task.cancelled for task in job.live.values())
    if hopeless and not job.cancelling:
        job.stopped_by = FAILED_MEMBER
        cause, state.cause = state.cause, FAILED_MEMBER
        cancel_all(state, job)
        state.cause = cause
    under_way = [task for task in job.live.values() if task.attempt is not None]
    early = [task for task in under_way if task.attempt is not None and task.attempt.early]
    if len(early) == job.spec.span:
        _accept(state, early)
        return
    unheard = sum(task.standing is Standing.UNHEARD for task in job.live.values())
    stopping = any(task.attempt is not None and task.attempt.moved_for for task in under_way)
    if stopping or (under_way and len(under_way) + unheard < job.spec.span):
        for task in early:
            _take_back(state, task)
        _stop(state, [task for task in under_way if task.attempt is not None])


def _accept(state: State, tasks: list[Task]) -> None:
    for task in sorted(tasks, key=lambda task: task.index):
        attempt = task.attempt
        if attempt is not None and attempt.early is not None:
            accept(state, attempt.worker, [attempt.early], [], state.at)
            state.touch(state.workers[attempt.worker])


def _take_back(state: State, task: Task) -> None:
    """Drops the good result of a member, whose worker need not keep it any longer."""
    attempt = task.attempt
    assert attempt is not None
    end(state, state.workers[attempt.worker], task)
    task.concluded = max(task.concluded, attempt.number)
    if task.is_unwanted:
        finish(state, task, TaskState.CANCELLED, attempt.worker, attempt.early)
    else:
        why = "another member of the job has not ended well"
        state.tell(
            task.job, task.index, "moved", number=attempt.number, worker=attempt.worker, detail=why
        )
        put_back(state, task, attempt.worker)
    state.emit(Acknowledge(worker=attempt.worker, numbers=[attempt.number]))


def _stop(state: State, tasks: list[Task]) -> None:
    """Stops members that run without the others, unless that was asked before."""
    for task in tasks:
        attempt = task.attempt
        if attempt is None or attempt.moved_for or task.is_unwanted:
            continue
        worker = state.workers[attempt.worker]
        move_away(worker, [attempt.number], "another member of the job has ended")
        if worker.online:
            state.emit(Kill(worker=worker.jid, numbers=[attempt.number]))
