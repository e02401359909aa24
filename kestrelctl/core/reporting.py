"""Attempts that ended: accepted once, counted, retried or given up. The hot path of the pool."""

from __future__ import annotations

from kestrelctl.core.effects import Acknowledge, Kill
from kestrelctl.core.events import Reported
from kestrelctl.core.health import note_failure, quarantine
from kestrelctl.core.job import Job, Phase, Task
from kestrelctl.core.losses import lose
from kestrelctl.core.membership import ask, renew
from kestrelctl.core.model import TaskState
from kestrelctl.core.result import Outcome, Result
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker


def on_reported(state: State, event: Reported) -> None:
    """Accepts results, frees what they took, and acknowledges every one, accepted or not.

    A result that no longer counts is acknowledged too: the worker need not keep it.
    """
    worker = state.worker(event.worker)
    jobs: dict[Job, list[float]] = {}
    totals = state.totals
    ran: list[float] = []
    dispatched: list[float] = []
    for result in event.results:
        task = worker.release(result.number) if worker else None
        if task is not None:
            task.job.running -= 1
        else:
            task = _late(state, result, event.at)
            if task is None:
                totals.reports_refused += 1
                continue
        job = task.job
        if result.outcome == Outcome.DONE:
            if task.sent_at:
                dispatched.append(
                    event.at - task.sent_at - result.wall_seconds - result.waited_seconds
                )
                job.latencies.append(dispatched[-1])
            ran.append(result.wall_seconds)
            state.finish(task, TaskState.DONE, event.worker, result)
            if worker:
                worker.streak = 0
                worker.tasks_done += 1
            walls = jobs.get(job)
            if walls is None:
                jobs[job] = [result.wall_seconds]
            else:
                walls.append(result.wall_seconds)
        else:
            # Its time teaches nothing: a machine that fails at once would seem to be a fast one.
            if result.outcome == Outcome.FAILED:
                ran.append(result.wall_seconds)
            _failed(state, worker, task, result, event.worker, event.at)
            jobs.setdefault(job, [])
    totals.runs.observe_all(ran)
    totals.dispatches.observe_all(dispatched)
    for job, walls in jobs.items():
        if walls:
            job.learn(sum(walls), len(walls))
        state.settle(job, event.at)
    state.flush_records()
    numbers = [result.number for result in event.results]
    state.emit(Acknowledge(cause=state.cause, worker=event.worker, numbers=numbers))
    if worker is None or not worker.online or not worker.synced:
        if event.worker not in state.asked:
            ask(state, event.worker)
        return
    worker.reported_at = event.at
    if event.results:
        last = event.results[-1]
        worker.skew.learn(last.started_at + last.wall_seconds, event.at)
    worker.promote()
    renew(state, worker, event.at)
    if worker.may_take(event.at):
        worker.wake()


def _late(state: State, result: Result, now: float) -> Task | None:
    """The task of a result whose attempt the pool had given up or, after a restart, never knew.

    The first success of a task without a final state is accepted whichever attempt it comes from,
    and a later attempt under way is stopped. A failure of an attempt already given up is not held
    against the task a second time.
    """
    job = state.jobs.get(result.job_id)
    if job is None or not 0 <= result.index < job.spec.count:
        return None
    if result.index >= job.cursor:
        if not state.may_reach(job, result.index, result.number):
            return None  # nobody ever sent it
        state.reach(job, result.index)
    task = job.live.get(result.index)
    if task is None:
        return None
    if result.outcome != Outcome.DONE:
        told_before = result.number <= task.concluded
        if told_before or not (task.phase is Phase.LIMBO or job.cancelling):
            # It is acknowledged, so the worker forgets it: a hello under way must not revive it.
            task.concluded = max(task.concluded, result.number)
            return None
    other = task.worker if task.phase is Phase.RUNNING else None
    number = task.number
    task.sent_at = 0.0
    state.detach(task)
    if other is not None:
        other.promote()
        state.emit(Kill(cause=state.cause, worker=other.jid, numbers=[number]))
        if other.may_take(now):
            other.wake()
    return task


def _failed(
    state: State, worker: Worker | None, task: Task, result: Result, jid: str, now: float
) -> None:
    job = task.job
    if job.cancelling:
        state.finish(task, TaskState.CANCELLED, jid, result)
        return
    task.concluded = max(task.concluded, result.number)
    if result.outcome == Outcome.KILLED:
        # Killed for no reason that still holds: it runs again, and nothing is held against it.
        job.requeue(task)
        return
    if result.outcome == Outcome.UNABLE:
        lose(state, task, jid, "unable")
        if worker:
            quarantine(state, worker, result.reason, now)
        return
    state.totals.attempts_failed += 1
    job.attempts_failed += 1
    task.failures += 1
    if worker:
        worker.tasks_failed += 1
        note_failure(state, worker, job, result, now)
    if task.failures >= job.spec.max_failures:
        state.finish(task, TaskState.FAILED, jid, result)
        return
    state.totals.retries["failure"] += 1
    state.remember(task, TaskState.WAITING, jid, result)
    config = state.config
    pause = config.backoff_seconds * 2 ** min(task.failures - 1, 30)
    state.delay(task, now + min(pause, config.max_backoff_seconds))
