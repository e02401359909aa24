"""Decides what the bad end of an attempt means for its task, by rules in the order that counts.

The first rule that has a verdict decides, and its verdict is carried out once. A good end asks none
of them (`reporting.accept`), and neither does the loss of a worker, which no report tells of
(`attempts.endings.lose`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from kestrelctl.core.attempts.endings import (
    ask_for_more,
    cannot_start,
    finish,
    outlast,
    pause,
    put_back,
    remember,
    seconds_to_outlast,
    was_refused,
)
from kestrelctl.core.attempts.estimates import note_refusal, refused_asset, was_alone
from kestrelctl.core.features.hold import hold_if_failing
from kestrelctl.core.handlers.checkpoints import go_on, keep_checkpoint
from kestrelctl.core.handlers.health import note_failure, note_unable
from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.jobs.job import Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.end_reason import EndKind, EndReason
from kestrelctl.core.model.job.ending_rules import asks_for_more_memory, may_be_retried
from kestrelctl.core.model.job.stage import RUN
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.result import Outcome, Result, how_it_ended
from kestrelctl.core.model.worker.assets import describe
from kestrelctl.core.state import State

#: A job goes to the end of the queue of its priority with each so many failures in a row.
LETS_OTHERS_BY = 10


class BadEnd(NamedTuple):
    """An attempt that ended otherwise than done.

    Attributes:
        worker: the one that reports it; None if the pool does not know it.
        result: its result, as it counts.
        why: the reason in it.
    """

    state: State
    worker: Worker | None
    task: Task
    attempt: Attempt
    result: Result
    why: EndReason


class EndVerdict(enum.Enum):
    """The decision on what becomes of the task."""

    CANCELLED = "cancelled"  #: nobody wants it any more
    GOES_ON = "goes on"  #: it runs again from its checkpoint
    MOVED = "moved"  #: it was stopped to run elsewhere, or nobody wants it stopped any more
    OUTLASTS = "outlasts"  #: it asks for more time than its lender has
    UNABLE = "unable"  #: it runs elsewhere: the machine could not start it
    REFUSED = "refused"  #: it runs elsewhere or later: there was no more of an asset
    MORE_MEMORY = "more memory"  #: it runs again with more
    STARTS_AGAIN = "starts again"  #: it is a copy of a service
    RETRIED = "retried"  #: it has failed, and pauses
    FAILED = "failed"  #: it has failed for good


def _unwanted(end: BadEnd) -> EndVerdict | None:
    return EndVerdict.CANCELLED if end.task.is_unwanted else None


def _goes_on(end: BadEnd) -> EndVerdict | None:
    return EndVerdict.GOES_ON if end.result.outcome == Outcome.GOES_ON else None


def _killed(end: BadEnd) -> EndVerdict | None:
    return EndVerdict.MOVED if end.result.outcome == Outcome.KILLED else None


def _lent_time(end: BadEnd) -> EndVerdict | None:
    """The verdict if its lender lets it run no longer, unless it had asked for more than it got:
    such a lender is unable to run it, like any other machine, or it would get it again at once.
    """
    lent = end.why.kind is EndKind.LENT_TIME and is_neighbour(end.attempt.worker)
    asks_for_more = seconds_to_outlast(end.result) > end.task.least_seconds
    return EndVerdict.OUTLASTS if lent and asks_for_more else None


def _unable(end: BadEnd) -> EndVerdict | None:
    computed = bool(end.task.job.spec.program.stages) and end.why.has_computed
    unable = end.result.outcome == Outcome.UNABLE and not computed
    return EndVerdict.UNABLE if unable else None


def _refused(end: BadEnd) -> EndVerdict | None:
    """The verdict if it was refused an asset, unless it was refused too often though nothing else
    took any: then the task is at fault, not the asset, and has failed.
    """
    asset = _asset(end)
    if not asset or end.worker is None:
        return None
    lone = end.task.lone_refusals + was_alone(end.worker, asset, end.attempt)
    again = end.task.job.spec.service or lone < end.state.config.lone_refusals
    return EndVerdict.REFUSED if again else None


def _memory(end: BadEnd) -> EndVerdict | None:
    asks = asks_for_more_memory(end.task.job.spec, end.task.memory_step, end.result)
    return EndVerdict.MORE_MEMORY if asks else None


def _service(end: BadEnd) -> EndVerdict | None:
    return EndVerdict.STARTS_AGAIN if end.task.job.spec.service else None


def _failed(end: BadEnd) -> EndVerdict:
    spec = end.task.job.spec
    over = end.task.failures + 1 >= spec.max_failures or not may_be_retried(spec, end.result)
    return EndVerdict.FAILED if over else EndVerdict.RETRIED


RULES: tuple[Callable[[BadEnd], EndVerdict | None], ...] = (
    _unwanted, _goes_on, _killed, _lent_time, _unable, _refused, _memory, _service, _failed,
)  # fmt: skip


def judge(end: BadEnd) -> EndVerdict:
    """Returns the verdict of the first rule that has one."""
    found = (rule(end) for rule in RULES)
    return next(verdict for verdict in found if verdict is not None)


def conclude(
    state: State, worker: Worker | None, task: Task, attempt: Attempt, result: Result
) -> None:
    """Does to a task what the bad end of its attempt means. It was taken from its worker before.

    Args:
        worker: the one that reports it; None if the pool does not know it.
    """
    result = _as_it_counts(task, result)
    end = BadEnd(state, worker, task, attempt, result, EndReason.of(result.reason))
    verdict = judge(end)
    if verdict is not EndVerdict.CANCELLED:
        task.concluded = max(task.concluded, result.number)
    if verdict in _ASKS_OF_ASSETS and (asset := _asset(end)) and worker is not None:
        task.lone_refusals += note_refusal(state, worker, asset, attempt)
        if verdict is not EndVerdict.REFUSED:
            task.lone_refusals = 0
    _CARRIED_OUT[verdict](end)


def _as_it_counts(task: Task, result: Result) -> Result:
    """Mends a result: a task goes on only from a checkpoint, if its job has a code for that."""
    job = task.job
    if task.is_unwanted:
        if job.stopped_by and result.outcome == Outcome.KILLED:
            result = msgspec.structs.replace(result, reason=job.stopped_by)
        return msgspec.structs.replace(result, checkpoint=None)
    can_go_on = result.checkpoint is not None and job.spec.program.checkpoint_exit is not None
    if result.outcome == Outcome.GOES_ON and not can_go_on:
        reason = EndKind.CHECKPOINT_FAILED.text("what its worker says of it cannot be")
        return msgspec.structs.replace(result, outcome=Outcome.FAILED, reason=reason)
    return result


def _asset(end: BadEnd) -> str:
    """Names the asset of which the attempt says that there was no more; empty for none."""
    return "" if end.worker is None else refused_asset(end.worker, end.attempt, end.result)


#: The verdicts that come after the rule that asks whether the attempt was refused an asset.
_ASKS_OF_ASSETS = frozenset(
    (
        EndVerdict.REFUSED,
        EndVerdict.MORE_MEMORY,
        EndVerdict.STARTS_AGAIN,
        EndVerdict.RETRIED,
        EndVerdict.FAILED,
    )
)


def _cancel(end: BadEnd) -> None:
    finish(end.state, end.task, TaskState.CANCELLED, end.attempt.worker, end.result)


def _go_on(end: BadEnd) -> None:
    assert end.result.checkpoint is not None
    keep_checkpoint(end.state, end.task, end.result.number, end.result.checkpoint)
    result = msgspec.structs.replace(end.result, checkpoint=None)
    go_on(end.state, end.task, end.attempt, result)


def _move(end: BadEnd) -> None:
    """Lets the task run again; no failure is counted."""
    _tell(end, "moved" if end.attempt.moved_for else "killed", end.attempt.moved_for)
    put_back(end.state, end.task, end.attempt.worker)


def _outlast(end: BadEnd) -> None:
    outlast(end.state, end.task, end.attempt, end.result)


def _run_elsewhere(end: BadEnd) -> None:
    cannot_start(end.state, end.task, end.attempt, end.result.reason)
    # A neighbour that does not run this task may well run others.
    if end.worker is not None and not end.worker.cls.distance_seconds:
        note_unable(end.state, end.worker, end.result.reason, end.state.at)


def _refuse(end: BadEnd) -> None:
    why = f"no more {_asset(end)}: exit code {end.result.exit_code}"
    was_refused(end.state, end.task, end.attempt, why)


def _ask_for_more(end: BadEnd) -> None:
    """Lets a task run again, at once, with more memory. It counts as no failure."""
    state, task = end.state, end.task
    ask_for_more(state, task, task.memory_step + 1)
    state.totals.retries["memory"] += 1
    wanted = describe("memory", task.line.shape.request["memory"])
    _tell(end, "more-memory", f"{end.result.reason}; asks for {wanted}")
    remember(state, task, TaskState.WAITING, end.attempt.worker, end.result)
    put_back(state, task, "")


def _start_again(end: BadEnd) -> None:
    """Lets a copy of a service pause that has ended, however it did. It counts as no failure."""
    state, task = end.state, end.task
    if end.result.wall_seconds >= state.config.service_settled_seconds:
        task.quick_ends = 0
    task.restarts += 1
    state.totals.retries["service"] += 1
    _tell(end, "restarted", _how_it_ran(end.result))
    remember(state, task, TaskState.WAITING, end.attempt.worker, end.result)
    pause(state, task, task.quick_ends)
    task.quick_ends += 1


def _retry(end: BadEnd) -> None:
    """Lets a task pause that has failed."""
    state, task = end.state, end.task
    _count_failure(end)
    state.totals.retries["failure"] += 1
    _tell(end, "failed", _how_it_ran(end.result))
    remember(state, task, TaskState.WAITING, end.attempt.worker, end.result)
    pause(state, task, task.failures - 1)
    hold_if_failing(state, task.job, end.result)


def _fail(end: BadEnd) -> None:
    _count_failure(end)
    finish(end.state, end.task, TaskState.FAILED, end.attempt.worker, end.result)
    hold_if_failing(end.state, end.task.job, end.result)


def _count_failure(end: BadEnd) -> None:
    state, job = end.state, end.task.job
    state.totals.attempts_failed += 1
    if job.spec.program.stages:
        state.totals.stage_failures[end.why.stage or RUN] += 1
    end.task.failures += 1
    job.failed_in_row += 1
    if job.failed_in_row % LETS_OTHERS_BY == 0:
        job.line = state.next_job_id
    if end.worker is not None:
        end.worker.tasks_failed += 1
        note_failure(state, end.worker, job, end.attempt.sent_at, end.result, state.at)


def _tell(end: BadEnd, what: str, detail: str) -> None:
    task, number, worker = end.task, end.result.number, end.attempt.worker
    end.state.tell(task.job, task.index, what, number=number, worker=worker, detail=detail)


def _how_it_ran(result: Result) -> str:
    how = how_it_ended(result.reason, result.signal, result.exit_code)
    return f"ran {result.wall_seconds:,.3f} s; {how}"


_CARRIED_OUT: dict[EndVerdict, Callable[[BadEnd], None]] = {
    EndVerdict.CANCELLED: _cancel,
    EndVerdict.GOES_ON: _go_on,
    EndVerdict.MOVED: _move,
    EndVerdict.OUTLASTS: _outlast,
    EndVerdict.UNABLE: _run_elsewhere,
    EndVerdict.REFUSED: _refuse,
    EndVerdict.MORE_MEMORY: _ask_for_more,
    EndVerdict.STARTS_AGAIN: _start_again,
    EndVerdict.RETRIED: _retry,
    EndVerdict.FAILED: _fail,
}
