"""Carries out what becomes of a task after an attempt, and of a job after its last task."""

from __future__ import annotations

import heapq
import math

import msgspec

from kestrelctl.core.effects import Feed, JobEnded
from kestrelctl.core.events import JobClosed
from kestrelctl.core.jobs.attempt import Attempt, Phase
from kestrelctl.core.jobs.job import Job, LargerRequest, Standing, Task
from kestrelctl.core.model.end_reason import EndReason
from kestrelctl.core.model.job.ending_rules import backoff_bounds
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.result import Result
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.core.state import BackOff, State

#: An enumeration looks its members up slowly, and this one is needed for each task.
DONE = TaskState.DONE


def remember(
    state: State, task: Task, to: TaskState, worker: str, result: Result | None
) -> TaskRecord:
    """Writes a task's record with the next commit; a cancelled task stays cancelled in it."""
    record = TaskRecord(
        task.job.id,
        task.index,
        TaskState.CANCELLED if task.cancelled else to,
        task.failures,
        task.losses,
        worker,
        result,
        task.concluded,
        task.retried_after,
        task.memory_step,
        task.least_seconds,
        task.checkpoint,
    )
    state.records.append(record)
    return record


def finish(state: State, task: Task, to: TaskState, worker: str, result: Result | None) -> None:
    """Gives a task its final state. The caller has withdrawn it from wherever it stood.

    A task that was cancelled on its own has been stored as cancelled, so it stays that, whatever
    came of it.
    """
    job = task.job
    if task.cancelled:
        to = TaskState.CANCELLED
    del job.live[task.index]
    if job.pairing is not None:
        job.pairing.behind.discard(task.index)
    if to is not DONE:
        job.note_bad(task.index, task.index)
    counts, totals = job.counts, state.totals
    if to is DONE:
        counts.done += 1
        totals.tasks_done += 1
    elif to is TaskState.FAILED:
        counts.failed += 1
        totals.tasks_failed += 1
    elif to is TaskState.LOST:
        counts.lost += 1
        totals.tasks_lost += 1
    else:
        counts.cancelled += 1
        totals.tasks_cancelled += 1
    state.ended_tasks.append(remember(state, task, to, worker, result))


def write_passed(state: State, job: Job) -> None:
    """Writes rows for cancelled tasks that the cursor has passed over: below it, all have one."""
    pairing = job.pairing
    if pairing is None or not pairing.passed:
        return
    for first, last in pairing.passed:
        for index in range(first, last + 1):
            record = TaskRecord(job.id, index, TaskState.CANCELLED, 0, 0, "", None)
            state.record(record)
    pairing.passed.clear()


def put_back(state: State, task: Task, worker: str) -> None:
    """Lets a task wait that no worker has any more; if nobody wants it either, it is over."""
    if task.is_unwanted:
        finish(state, task, TaskState.CANCELLED, worker, None)
    else:
        line = task.line
        if not line.waiting:
            line.waits_since = state.at  # nobody let it starve
        task.job.line_up(task)
        state.touch_job(task.job)


def ask_for_more(state: State, task: Task, step: int) -> None:
    """Makes a task ask for more memory from now on, in a line of its own shape.

    Args:
        step: how often it has asked for more.
    """
    task.memory_step = step
    _open_line(state, task)


def seconds_to_outlast(result: Result) -> float:
    """The time that a task asks for after an attempt that a lender has ended."""
    return 2.0 ** math.floor(math.log2(max(result.wall_seconds, 0.5)) + 1)


def outlast(state: State, task: Task, attempt: Attempt, result: Result) -> None:
    """Lets a task run elsewhere that a lender has ended because it may run no longer there.

    This is neither a failure nor a loss. From now on the task asks for more time than it has had:
    so it goes to no lender again that lets it have no more. It asks for the next power of two, so
    that tasks that were ended after about the same time wait in one line (`seconds_to_outlast`).
    That is stored: a restart forgets no limit.
    """
    task.least_seconds = max(task.least_seconds, seconds_to_outlast(result))
    _open_line(state, task)
    detail = EndReason.of(result.reason).detail
    state.tell(
        task.job, task.index, "moved", number=result.number, worker=attempt.worker, detail=detail
    )
    remember(state, task, TaskState.WAITING, attempt.worker, result)
    put_back(state, task, attempt.worker)


def _open_line(state: State, task: Task) -> None:
    """Makes the line in which a task waits that asks for more than its job."""
    job, step, seconds = task.job, task.memory_step, task.least_seconds
    if not (step or seconds) or (step, seconds) in job.larger:
        return
    asks = job.spec.with_more_memory(step) if step else job.spec
    if seconds:
        longer = max(seconds, asks.time_request_seconds or 0.0)
        asks = msgspec.structs.replace(asks, time_request_seconds=longer)
    job.larger[step, seconds] = LargerRequest(job, asks, state.demand.shape_of(asks, job.owner))


def back_off(state: State, task: Task, until: float) -> None:
    """Lets a failed task wait before its next attempt."""
    task.standing = Standing.BACKOFF
    task.backoff_until = until
    heapq.heappush(state.backoffs, (until, task.job.id, task.index))


def pause(state: State, task: Task, before: int) -> None:
    """Lets a task wait for its next attempt, each time twice as long, as its job says.

    Args:
        before: how many pauses it has had.
    """
    config, spec = state.config, task.job.spec
    first, longest = backoff_bounds(spec, config.backoff_seconds, config.max_backoff_seconds)
    back_off(state, task, state.at + doubled_seconds(first, before, longest))


def end_backoffs(state: State, now: float) -> None:
    """Makes failed tasks ready whose back-off is over."""
    while state.backoffs and state.backoffs[0][0] <= now:
        task = in_backoff(state, heapq.heappop(state.backoffs))
        if task is not None:
            put_back(state, task, "")


def in_backoff(state: State, entry: BackOff) -> Task | None:
    """The task of an entry of `State.backoffs`, if it still waits for that moment.

    A task that stopped waiting leaves its entry behind, and may fail again before that is due.
    """
    until, job_id, index = entry
    job = state.jobs.get(job_id)
    task = job.live.get(index) if job is not None else None
    if task is None or task.standing is not Standing.BACKOFF or task.backoff_until != until:
        return None
    return task


def lose(state: State, task: Task, attempt: Attempt, cause: str, *, innocent: bool = False) -> None:
    """Decides about a task whose attempt's worker went away; it runs again, rather elsewhere.

    An attempt that was only queued there costs nothing. If the worker said nothing after it was
    sent, nobody knows whether it had begun: the first of these is not counted.

    A loss at a neighbour is not counted either: what is gone is the way to it, or all of it, and no
    task is to blame. A task that ends its workers there is counted there.

    Args:
        attempt: as it was when it ended.
        cause: one of `totals.LOSS_CAUSES`.
        innocent: whether something else that ran there is suspected: then the loss is not counted
            either.
    """
    config = state.config
    task.give_up(attempt)
    if attempt.phase is not Phase.RUNNING:
        put_back(state, task, attempt.worker)
        return
    lost_at = state.workers[attempt.worker]
    unbegun = lost_at.heard_at <= attempt.sent_at
    if lost_at.cls.distance_seconds:
        spared = "not counted: a neighbour is gone"
    elif innocent:
        spared = "not counted: a task beside it is suspected"
    elif unbegun and not task.spared_numbers:
        spared = "not counted: it may not have begun"
    elif task.job.spec.service and attempt.sent_at + config.service_settled_seconds <= state.at:
        task.losses = 0
        spared = "not counted: a service that has run goes on"
    else:
        spared = ""
    _note_loss(state, task, attempt, cause, spared)
    if spared:
        task.spared_numbers += (attempt.number,)
        _run_again(state, task, 0.0)
        return
    task.losses += 1
    worker = attempt.worker
    given_up = task.losses >= task.job.spec.max_losses and not task.job.spec.service
    if given_up and not task.is_unwanted:
        finish(state, task, TaskState.LOST, worker, None)
        return
    if not task.is_unwanted:
        remember(state, task, TaskState.WAITING, worker, None)
    _run_again(state, task, attempt.sent_at + _pause_seconds(state, task.losses - 1))


def cannot_start(state: State, task: Task, attempt: Attempt, why: str) -> None:
    """Lets a task run elsewhere that its worker's machine could not start; no loss is counted."""
    _note_loss(state, task, attempt, "unable", why)
    task.unable += 1
    _run_again(state, task, attempt.sent_at + _pause_seconds(state, task.unable - 1))


def was_refused(state: State, task: Task, attempt: Attempt, why: str) -> None:
    """Lets a task run elsewhere, or later, for which its worker had no more of an asset; no loss is
    counted.
    """
    worker = attempt.worker
    _shun(state, task, worker)
    state.tell(task.job, task.index, "refused", number=attempt.number, worker=worker, detail=why)
    task.unable += 1
    pause = _pause_seconds(state, task.unable - 1)
    _run_again(state, task, attempt.sent_at + pause, "refusal")


def _shun(state: State, task: Task, worker: str) -> None:
    task.lost_at, task.shun_until = worker, state.at + state.config.shun_seconds


def _note_loss(state: State, task: Task, attempt: Attempt, cause: str, detail: str) -> None:
    worker = attempt.worker
    state.totals.losses[cause] += 1
    task.lost_numbers += (attempt.number,)
    _shun(state, task, worker)
    state.tell(
        task.job,
        task.index,
        "lost",
        number=attempt.number,
        worker=worker,
        cause=cause,
        detail=detail,
    )


def _pause_seconds(state: State, before: int) -> float:
    """The pause from the start of a lost attempt to the next; none after the first loss."""
    config = state.config
    if not before:
        return 0.0
    return doubled_seconds(config.backoff_seconds, before - 1, config.max_backoff_seconds)


def _run_again(state: State, task: Task, at: float, reason: str = "loss") -> None:
    """Makes a lost or refused task ready, at that moment if it is still to come."""
    if not task.is_unwanted:
        state.totals.retries[reason] += 1
        if at > state.at:
            back_off(state, task, at)
            return
    put_back(state, task, "")


def find_again(state: State, task: Task) -> None:
    """Takes a loss back: the attempt survived, only the way to its worker was gone."""
    attempt = task.attempt
    if attempt is None or attempt.number not in task.lost_numbers:
        return
    task.lost_numbers = tuple(n for n in task.lost_numbers if n != attempt.number)
    state.totals.losses_found_again += 1
    state.tell(task.job, task.index, "found-again", number=attempt.number, worker=attempt.worker)
    if attempt.number in task.spared_numbers:  # its next loss may count, and be taken back as well
        task.spared_numbers = tuple(n for n in task.spared_numbers if n != attempt.number)
        return
    task.losses -= 1
    remember(state, task, TaskState.WAITING, attempt.worker, None)


def settle_job(state: State, job: Job, now: float) -> None:
    """Keeps the queue true after a job changed; ends the job after its last task."""
    if state.demand.update(job):
        state.supply.wake_for(job.shape)
    for line in job.larger.values():
        if state.demand.update(line):
            state.supply.wake_for(line.shape)
    if job.live or job.remaining or job.id not in state.jobs or not job.stored:
        return
    state.remove_job(job)
    state.ending[job.id] = job
    outcome = job.counts.outcome()
    state.totals.jobs_finished[outcome] += 1
    record = job.record(outcome, now)
    state.record(record)
    state.emit(JobEnded(record=record, dispatch_seconds=sorted(job.latencies)))
    closed = JobClosed(at=now, cause=state.cause, job_id=job.id)
    state.emit(Feed(event=closed, urgent=_sets_free(state, job)))


def _sets_free(state: State, job: Job) -> bool:
    """Whether somebody now waits only for ends that are not durable yet."""
    return job.id in state.dependencies and any(
        not any(parent in state.jobs for parent in parents.left)
        for parents in state.dependencies.of(job.id)
    )
