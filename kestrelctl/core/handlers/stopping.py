"""Jobs that the pool stops: at their deadline, or when too many of their tasks have failed."""

from __future__ import annotations

import heapq

from kestrelctl.core.events import ClockSet
from kestrelctl.core.handlers.submission import cancel_all
from kestrelctl.core.jobs.job import DEADLINE, FAILED_TASKS, Job
from kestrelctl.core.model.plural import plural
from kestrelctl.core.state import State


def end_deadlines(state: State, now: float) -> None:
    """Stops jobs whose deadline has come, as a cancel does; their records say why.

    What is stopped is cancelled and has not failed: nothing was wrong with it but the hour. Slurm
    has a state of its own for that, DEADLINE (sacct); a job here has its state and a reason.
    """
    for deadlines, moment in (
        (state.deadlines, now),
        (state.named_deadlines, now + state.wall_ahead_seconds),
    ):
        while deadlines and deadlines[0][0] <= moment:
            _, job_id = heapq.heappop(deadlines)
            job = state.jobs.get(job_id)
            if job is None or job.cancelling:
                continue
            job.stopped_by = DEADLINE
            state.cause = DEADLINE
            state.note("info", f"job {job_id} is stopped: its deadline has come")
            cancel_all(state, job)


def on_clock_set(state: State, event: ClockSet) -> None:
    """Has moments that users have named follow the machine's clock. Nothing else does."""
    state.wall_ahead_seconds = event.ahead_seconds
    end_deadlines(state, event.at)


def stop_if_failed(state: State, job: Job) -> None:
    """Stops a job, as a cancel does, of which as many tasks have failed or are lost as it bears.

    It looks at the counts and at nothing else, so a manager that starts with what another one left
    undone does it as well.
    """
    most = job.spec.stop_after
    failed = job.counts.failed + job.counts.lost
    if most is None or failed < most or job.cancelling or not job.remaining:
        return
    job.stopped_by = FAILED_TASKS
    state.note("info", f"job {job.id} is stopped: {plural(failed, 'task')} failed")
    cause, state.cause = state.cause, FAILED_TASKS
    cancel_all(state, job)
    state.cause = cause
