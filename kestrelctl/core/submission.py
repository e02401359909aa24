"""Jobs come in, are cancelled, and are brought back."""

from __future__ import annotations

from kestrelctl.core.effects import Answer, Feed, Kill, Persist
from kestrelctl.core.events import Cancel, JobClosed, JobStored, Retry, Submit
from kestrelctl.core.job import Phase, Task
from kestrelctl.core.model import TaskState
from kestrelctl.core.state import State


def on_submit(state: State, event: Submit) -> None:
    """Takes a job in; its tasks run, and the user hears of it, once it is durable."""
    job_id = state.next_job_id
    state.next_job_id += 1
    job = state.new_job(job_id, event.owner, event.spec, event.at)
    state.totals.jobs_submitted += 1
    state.totals.tasks_submitted += event.spec.count
    state.emit(Persist(cause=state.cause, records=[job.record()]))
    state.emit(Feed(cause=state.cause, event=JobStored(at=event.at, id=event.id, job_id=job_id)))
    state.emit(
        Answer(cause=state.cause, request=event.request, job_id=job_id, tasks=event.spec.count)
    )


def on_job_stored(state: State, event: JobStored) -> None:
    """A job may run now."""
    job = state.jobs.get(event.job_id)
    if job is not None:
        job.stored = True
        state.settle(job, event.at)


def on_job_closed(state: State, event: JobClosed) -> None:
    """A job is over."""
    state.ending.pop(event.job_id, None)


def on_cancel(state: State, event: Cancel) -> None:
    """Drops what waits, kills what runs. The job ends when the last killed attempt is reported."""
    job = state.jobs.get(event.job_id)
    if job is None:
        state.emit(_refused(state, event.request, "not-found", f"job {event.job_id} is not active"))
        return
    if job.owner != event.by and not event.admin:
        text = f"job {job.id} belongs to {job.owner}"
        state.emit(_refused(state, event.request, "not-allowed", text))
        return
    stopped = job.remaining
    if not job.cancelling:
        job.cancelling = True
        job.counts.cancelled += job.never_started
        state.totals.tasks_cancelled += job.never_started
    kill: dict[str, list[int]] = {}
    for task in list(job.live.values()):
        if task.phase is Phase.RUNNING and task.worker is not None and task.worker.online:
            kill.setdefault(task.worker.jid, []).append(task.number)
        else:
            state.detach(task)
            state.finish(task, TaskState.CANCELLED, "", None)
    for jid, numbers in kill.items():
        state.emit(Kill(cause=state.cause, worker=jid, numbers=numbers))
    state.emit(Persist(cause=state.cause, records=[job.record()]))
    state.flush_records()
    state.settle(job, event.at)
    state.emit(Answer(cause=state.cause, request=event.request, job_id=job.id, tasks=stopped))


def on_retry(state: State, event: Retry) -> None:
    """Brings tasks back that ended badly, in an active job or one that has ended."""
    job = state.jobs.get(event.job_id)
    record = event.record
    if event.job_id in state.ending:
        text = f"job {event.job_id} is ending just now"
        state.emit(_refused(state, event.request, "error", text, "try again"))
        return
    if job is None and record is None:
        state.emit(_refused(state, event.request, "not-found", f"there is no job {event.job_id}"))
        return
    owner = job.owner if job else record.owner if record else ""
    if owner != event.by and not event.admin:
        text = f"job {event.job_id} belongs to {owner}"
        state.emit(_refused(state, event.request, "not-allowed", text))
        return
    if job is not None and job.cancelling:
        text = f"job {job.id} is being cancelled"
        state.emit(_refused(state, event.request, "error", text, "try again when it has ended"))
        return
    if record is not None and record.cancelling and not event.rest:
        text = f"job {event.job_id} was cancelled; it can only be retried as a whole"
        state.emit(
            _refused(state, event.request, "usage", text, "leave the selection of tasks out")
        )
        return
    if job is None and record is not None:
        job = state.restored_job(record)
        if record.cancelling:
            job.counts.cancelled -= job.never_started
        before = 0
    else:
        assert job is not None
        before = job.remaining
    for index, was in reversed(event.indexes):
        if index in job.live or index >= job.cursor:
            continue
        setattr(job.counts, was, getattr(job.counts, was) - 1)
        task = job.live[index] = Task(job, index, Phase.WAITING)
        task.concluded = state.next_number - 1  # what was sent before is over
        job.requeue(task)
        state.remember(task, TaskState.WAITING, "", None)
    brought_back = job.remaining - before
    if brought_back:
        job.waits_since = event.at
        state.totals.jobs_submitted += not before
        state.totals.tasks_submitted += brought_back
        state.emit(Persist(cause=state.cause, records=[job.record()]))
        state.flush_records()
        state.refresh(job)
    elif not before:
        del state.jobs[job.id]
    state.emit(Answer(cause=state.cause, request=event.request, job_id=job.id, tasks=brought_back))


def _refused(state: State, request: str, code: str, message: str, hint: str = "") -> Answer:
    return Answer(cause=state.cause, request=request, error=code, message=message, hint=hint)
