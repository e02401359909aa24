"""`--hold`, `--hold-after`, `job hold`: nothing more of a job is handed out until it is released.
What runs goes on, and what waits at workers is given back.

HTCondor's `condor_hold` also kills what runs. Here a cancel does that.
"""

from __future__ import annotations

from kestrelctl.core.effects import Answer
from kestrelctl.core.events import PutOnHold, Release
from kestrelctl.core.features.feature import Feature, Must
from kestrelctl.core.jobs.job import Gate, Job
from kestrelctl.core.model.job.hold import MAX_HOLD_REASON_CHARACTERS, POOL, SUBMITTED_SO, Hold
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.result import Result, how_it_ended
from kestrelctl.core.model.wording import plural
from kestrelctl.core.state import State


def on_put_on_hold(state: State, event: PutOnHold) -> None:
    """Puts a job on hold; a job that is on hold already stays so, with its reason."""
    job = _found(state, event)
    if job is None:
        return
    if job.cancelling:
        text = f"job {job.id} is being cancelled"
        state.refuse(event.request, "error", text, "there is nothing more to hold back")
        return
    if job.hold is not None:
        state.emit(Answer(request=event.request, job_id=job.id, repeated=True))
        return
    _hold(state, job, Hold(event.by, event.at, event.reason))
    state.emit(Answer(request=event.request, job_id=job.id, tasks=_held_back(job)))


def on_release(state: State, event: Release) -> None:
    """Lets a job go on. Failures in a row are counted anew: what was wrong may be mended."""
    job = _found(state, event)
    if job is None:
        return
    if job.hold is None:
        state.emit(Answer(request=event.request, job_id=job.id, repeated=True))
        return
    job.hold = None
    job.failed_in_row = 0
    for line in job.lines():
        line.waits_since = event.at  # nobody let it starve
    state.tell(job, -1, "released")
    state.record(job.record())
    state.touch_job(job)
    state.emit(Answer(request=event.request, job_id=job.id, tasks=_held_back(job)))


def hold_if_failing(state: State, job: Job, last: Result) -> None:
    """Puts a job on hold whose attempts have failed too often in a row, as it says itself.

    Args:
        last: the attempt that failed just now.
    """
    most = job.spec.hold_after
    if most is None or job.failed_in_row < most:
        return
    if _is_settled(job):
        return
    how = how_it_ended(last.reason, last.signal, last.exit_code)
    failures = plural(job.failed_in_row, "attempt")
    why = f"{failures} in a row failed, the last: {how}"[:MAX_HOLD_REASON_CHARACTERS]
    _hold(state, job, Hold(POOL, state.at, why), cause=POOL)
    state.note("warning", f"job {job.id} is on hold: {failures} in a row failed")


def hold_failed(state: State) -> None:
    """Puts jobs on hold whose requirements or rank cannot be evaluated beside some worker.

    This is done once for each class of workers: a job that is released runs where they can be
    evaluated. A guest's own pool decides about its jobs.
    """
    shapes = state.supply.newly_failed
    for job in state.jobs.values():
        shape = next((line.shape for line in job.lines() if line.shape in shapes), None)
        if shape is None or job.spec.guest is not None or _is_settled(job):
            continue
        hold = _hold_of_failed(state, shape)
        _hold(state, job, hold, cause=POOL)
        state.note("warning", f"job {job.id} is on hold: {hold.reason}")
    shapes.clear()


def _is_settled(job: Job) -> bool:
    """Whether the pool has nothing to hold back: somebody did, or nothing more begins anyway."""
    return job.hold is not None or job.cancelling or not job.remaining


def _found(state: State, event: PutOnHold | Release) -> Job | None:
    """The job, if it is active; otherwise the user has been told."""
    job = state.jobs.get(event.job_id)
    if job is None:
        state.refuse(event.request, "not-found", f"job {event.job_id} is not active")
        return None
    return job


def _hold(state: State, job: Job, hold: Hold, cause: str = "") -> None:
    job.hold = hold
    state.tell(job, -1, "held", detail=hold.reason, cause=cause)
    state.record(job.record())
    state.touch_job(job)
    for worker in state.backlogged.values() if job.running else ():
        waiting = [number for number in worker.queued_numbers() if worker.held[number].job is job]
        if waiting and worker.synced:
            state.recall(worker, waiting, makes_room=True)


def _held_back(job: Job) -> int:
    """Counts the tasks of a job that have no worker."""
    return job.remaining - job.running


def _submitted(state: State, job: Job) -> None:
    """Puts a job on hold if it was submitted so, or its expressions cannot be evaluated."""
    if job.spec.held:
        job.hold = Hold(job.owner, state.at, SUBMITTED_SO)
        state.tell(job, -1, "held", detail=SUBMITTED_SO)
    elif job.shape in state.supply.failed and job.spec.guest is None:
        job.hold = _hold_of_failed(state, job.shape)
        state.tell(job, -1, "held", detail=job.hold.reason, cause=POOL)


def _hold_of_failed(state: State, shape: Shape) -> Hold:
    """The pool's hold on jobs of a shape whose expressions cannot be evaluated."""
    refusal = state.supply.failed[shape]
    why = f"{refusal.wanted}: {refusal.found}"[:MAX_HOLD_REASON_CHARACTERS]
    return Hold(POOL, state.at, why)


def _tells(job: Job, _now: float) -> Refusal:
    assert job.hold is not None
    why = f": {job.hold.reason}" if job.hold.reason else ""
    return Refusal(Reason.HELD, found=f"by {job.hold.by}{why}")


def _violations(state: State, must: Must) -> None:
    for job in state.jobs.values():
        queued = any(line.place is not None for line in job.lines())
        must(job.hold is None or not queued, "job %s is on hold and in the queue", job.id)
        must(job.hold is None or not job.cancelling, "job %s is on hold and cancelled", job.id)


HOLD = Feature(
    gate=Gate(Reason.HELD, lambda job: None if job.hold is None else 0, _tells, always_told=True),
    submitted=_submitted,
    violations=_violations,
)
