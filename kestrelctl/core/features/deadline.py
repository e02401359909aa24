"""`--deadline`: a job that has not ended by a moment is stopped."""

from __future__ import annotations

from kestrelctl.core.attempts.cancelling import cancel_all
from kestrelctl.core.features.feature import Feature
from kestrelctl.core.jobs.job import DEADLINE, Job
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.state import Refused, State


def _comes(state: State, job: Job) -> None:
    """Stops a job, as a cancel does; its record says why.

    Tasks that are stopped are cancelled and have not failed: nothing was wrong with them but the
    hour. Slurm has a state of its own for that, DEADLINE (sacct); a job here has its state and a
    reason.
    """
    if job.cancelling:
        return
    job.stopped_by = DEADLINE
    state.cause = DEADLINE
    state.note("info", f"job {job.id} is stopped: its deadline has come")
    cancel_all(state, job)


def _refuses(state: State, spec: JobSpec, submitted_at: float) -> Refused | None:
    left_seconds = DEADLINES.left_seconds(state, spec, submitted_at)
    if left_seconds is None or left_seconds > 0:
        return None
    ago = f"the deadline was {-left_seconds:,.0f} s ago"
    return "usage", ago, "give one that is still to come"


DEADLINES = Feature(
    moment=JobSpec.deadline,
    is_named=lambda spec: spec.deadline_at is not None,
    comes=_comes,
    refuses=_refuses,
)
