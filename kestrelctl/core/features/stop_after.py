"""`--stop-after`: a job ends when too many of its tasks have failed."""

from __future__ import annotations

from kestrelctl.core.attempts.cancelling import cancel_all
from kestrelctl.core.features.feature import Feature, Must
from kestrelctl.core.jobs.job import FAILED_TASKS, Job
from kestrelctl.core.model.wording import plural
from kestrelctl.core.state import State


def _changed(state: State, job: Job) -> None:
    """Stops a job, as a cancel does, once as many tasks have failed or are lost as it bears.

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


def _reconnected(state: State) -> None:
    """Looks at all jobs: an earlier start may have left one that is to be stopped."""
    for job in state.jobs.values():
        if job.spec.stop_after is not None:
            state.touch_job(job)


def _violations(state: State, must: Must) -> None:
    for job in state.jobs.values():
        most = job.spec.stop_after
        over = most is not None and job.counts.failed + job.counts.lost >= most
        goes_on = over and not job.cancelling and state.connected
        must(not goes_on, "job %s goes on after its failed tasks", job.id)


STOP_AFTER = Feature(
    applies=lambda spec: spec.stop_after is not None,
    changed=_changed,
    reconnected=_reconnected,
    violations=_violations,
)
