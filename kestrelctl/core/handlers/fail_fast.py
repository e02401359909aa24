"""Jobs that are stopped when so many of their tasks have failed for good (`JobSpec.stop_after`)."""

from __future__ import annotations

from kestrelctl.core.handlers.submission import cancel_all
from kestrelctl.core.jobs.job import FAILED_TASKS, Job
from kestrelctl.core.model.plural import plural
from kestrelctl.core.state import State


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
