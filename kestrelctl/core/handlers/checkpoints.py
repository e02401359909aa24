"""Keeps the checkpoints of tasks as they come, and lets tasks go on from them."""

from __future__ import annotations

from kestrelctl.core.attempts.endings import pause, put_back, remember
from kestrelctl.core.attempts.table import move_away
from kestrelctl.core.effects import TakeCheckpoints
from kestrelctl.core.events import Checkpointed
from kestrelctl.core.features.stored_bytes import count_stored
from kestrelctl.core.handlers.presence import spoke
from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.jobs.job import Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.end_reason import ended_by_itself
from kestrelctl.core.model.job.checkpoint import Checkpoint, MadeCheckpoint, can_be_given
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.result import MOST_REASON_CHARACTERS, Result, how_it_ended
from kestrelctl.core.state import State


def on_checkpointed(state: State, event: Checkpointed) -> None:
    """Keeps a checkpoint of an attempt that the worker has; any other does not count.

    No seal is asked for: what a worker has is known here, or it is first asked for that.
    """
    worker = spoke(state, event.worker, event.at)
    task = worker.held.get(event.number) if worker is not None else None
    if worker is None or task is None or not task.job.spec.program.checkpoints or task.is_unwanted:
        return
    if event.made is not None:
        if keep_checkpoint(state, task, event.number, event.made):
            remember(state, task, TaskState.WAITING, worker.jid, None)
        return
    why = event.problem[:MOST_REASON_CHARACTERS]
    job, number = task.job, event.number
    state.tell(job, task.index, "began-anew", number=number, worker=worker.jid, detail=why)
    if task.checkpoint is not None and task.checkpoint.number < number:
        task.checkpoint = None
        remember(state, task, TaskState.WAITING, worker.jid, None)


def keep_checkpoint(state: State, task: Task, number: int, made: MadeCheckpoint) -> bool:
    """Makes the next attempt of a task go on from this, unless there is something newer.

    Args:
        number: the attempt that has made it. Checkpoints from before a user's retry do not count.

    Returns:
        Whether it is kept; the caller has the task's record written.
    """
    known = task.checkpoint
    newer = known is None or known.is_older_than(number, made.n)
    if not newer or number <= task.retried_after or not can_be_given(made.stored):
        return False
    task.checkpoint = Checkpoint(number, made.n, made.stored, state.at)
    count_stored(state, task.job.sharer, made.stored.size_bytes)
    return True


def go_on(state: State, task: Task, attempt: Attempt, result: Result) -> None:
    """Lets a task wait in line that has ended to go on later. That counts as no failure.

    A task that nobody had asked to end, and that had run for a short time, pauses before, so that a
    program that does nothing else cannot spin.
    """
    task.restarts += 1
    state.totals.retries["checkpoint"] += 1
    remark = result.reason if ended_by_itself(result.reason) else ""
    asked = attempt.moved_for or ("" if remark else result.reason)
    how = asked or how_it_ended("", result.signal, result.exit_code)
    if remark:
        how = f"{how}; {remark}"
    n = task.checkpoint.n if task.checkpoint is not None else 0
    state.tell(
        task.job,
        task.index,
        "goes-on",
        number=result.number,
        worker=attempt.worker,
        detail=f"ran {result.wall_seconds:,.3f} s; {how}; checkpoint {n}",
    )
    remember(state, task, TaskState.WAITING, attempt.worker, result)
    if asked or result.wall_seconds >= state.config.service_settled_seconds:
        task.quick_ends = 0
        put_back(state, task, attempt.worker)
        return
    pause(state, task, task.quick_ends)
    task.quick_ends += 1


def take_checkpoints(state: State, worker: Worker, why: str) -> None:
    """Asks a worker that shall be empty soon to store the checkpoints of what runs there, and to
    stop what goes on elsewhere.

    Args:
        why: what is the matter with the worker, in words; empty if nothing is. It is asked again to
            stop what it was asked to stop before: that may not have reached it.
    """
    numbers: list[int] = []
    stop: list[int] = []
    for number, task in worker.held.items():
        if not task.job.spec.program.checkpoints or task.is_unwanted or task.attempt is None:
            continue
        if why:
            numbers.append(number)
        if task.goes_on and (why or task.attempt.moved_for):
            stop.append(number)
    if why:
        move_away(worker, stop, why)
    if worker.online and (numbers or stop):
        state.emit(TakeCheckpoints(worker=worker.jid, numbers=numbers, stop=stop))
