"""Jobs come in, are cancelled, and are brought back."""

from __future__ import annotations

from kestrelctl.core.attempts.book import withdraw
from kestrelctl.core.attempts.endings import finish, remember
from kestrelctl.core.effects import Answer, Feed, Kill
from kestrelctl.core.events import Cancel, Forget, JobClosed, JobStored, Retry, Submit
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.records import JobForgotten
from kestrelctl.core.model.task_state import TaskState
from kestrelctl.core.state import State


def on_submit(state: State, event: Submit) -> None:
    """Takes a job in; its tasks run, and the user hears of it, once it is durable.

    A submission that comes again under its key is answered with the job that it has made.
    """
    if event.key and _was_submitted(state, event):
        return
    job_id = state.next_job_id
    state.next_job_id += 1
    job = state.new_job(job_id, event.owner, event.spec, event.at)
    if event.key:
        job.key = event.key
        state.keys[event.owner, event.key] = job_id
    state.totals.jobs_submitted += 1
    state.totals.tasks_submitted += event.spec.count
    state.record(job.record())
    state.emit(Feed(event=JobStored(at=event.at, cause=event.cause, job_id=job_id)))
    state.emit(Answer(request=event.request, job_id=job_id, tasks=event.spec.count))


def on_job_stored(state: State, event: JobStored) -> None:
    """Lets the tasks of a job run that is durable now."""
    job = state.jobs.get(event.job_id)
    if job is not None:
        job.stored = True
        state.keys.pop((job.owner, job.key), None)
        state.touch_job(job)


def _was_submitted(state: State, event: Submit) -> bool:
    """Whether the owner has a job under this key; if so, the user has been told.

    A forgotten job's key is free again: nothing of such a job is kept.
    """
    job_id = state.keys.get((event.owner, event.key))
    if job_id is not None:
        spec = state.jobs[job_id].spec
    elif event.earlier is not None and event.earlier.job_id not in state.forgetting:
        job_id, spec = event.earlier.job_id, event.earlier.spec
    else:
        return False
    if spec == event.spec:
        state.emit(Answer(request=event.request, job_id=job_id, tasks=spec.count, repeated=True))
    else:
        text = f"the key {event.key!r} belongs to job {job_id}, which is another one"
        hint = "give each job a key of its own; the same key is for sending the same job again"
        _refuse(state, event.request, "usage", text, hint)
    return True


def on_job_closed(state: State, event: JobClosed) -> None:
    """Drops what was kept about a job until the store had the last word."""
    state.ending.pop(event.job_id, None)
    state.forgetting.discard(event.job_id)


def on_cancel(state: State, event: Cancel) -> None:
    """Drops what waits, kills what runs. The job ends when the last killed attempt is reported."""
    job = state.jobs.get(event.job_id)
    if job is None:
        _refuse(state, event.request, "not-found", f"job {event.job_id} is not active")
        return
    if _is_anothers(state, event, job.id, job.owner):
        return
    stopped = job.remaining
    if not job.cancelling:
        job.cancelling = True
        state.tell(job, -1, "cancelled", detail=plural(stopped, "task"))
        job.counts.cancelled += job.never_started
        state.totals.tasks_cancelled += job.never_started
    kill: dict[str, list[int]] = {}
    for task in list(job.live.values()):
        attempt = task.attempt
        if attempt is not None and state.workers[attempt.worker].online:
            kill.setdefault(attempt.worker, []).append(attempt.number)
        else:
            withdraw(state, task)
            finish(state, task, TaskState.CANCELLED, "", None)
    for jid, numbers in kill.items():
        state.emit(Kill(worker=jid, numbers=numbers))
    state.record(job.record())
    state.touch_job(job)
    state.emit(Answer(request=event.request, job_id=job.id, tasks=stopped))


def on_retry(state: State, event: Retry) -> None:
    """Brings tasks back that ended badly, in an active job or one that has ended."""
    if not _may_retry(state, event):
        return
    job = state.jobs.get(event.job_id)
    before = job.remaining if job is not None else 0
    if job is None:
        assert event.record is not None
        job = state.restored_job(event.record)
        job.happenings = event.happenings
        if event.record.cancelling:
            job.counts.cancelled -= job.never_started
    for index, was in reversed(event.indexes):
        if index not in job.live and index < job.cursor:
            _bring_back(state, job, index, was, tell=not event.rest)
    brought_back = job.remaining - before
    if brought_back:
        job.waits_since = event.at
        if event.rest:
            state.tell(job, -1, "retried", detail=plural(brought_back, "task"))
        state.totals.jobs_submitted += not before
        state.totals.tasks_submitted += brought_back
        state.record(job.record())
        state.touch_job(job)
    elif not before:
        del state.jobs[job.id]
    state.emit(Answer(request=event.request, job_id=job.id, tasks=brought_back))


def _may_retry(state: State, event: Retry) -> bool:
    """Whether the tasks may be brought back; if not, the user has been told why."""
    job, record = state.jobs.get(event.job_id), event.record
    if event.job_id in state.ending:
        text = f"job {event.job_id} is ending just now"
        return _refuse(state, event.request, "error", text, "try again")
    if (job is None and record is None) or event.job_id in state.forgetting:
        return _refuse(state, event.request, "not-found", f"there is no job {event.job_id}")
    owner = job.owner if job else record.owner if record else ""
    if _is_anothers(state, event, event.job_id, owner):
        return False
    if job is not None and job.cancelling:
        text = f"job {job.id} is being cancelled"
        return _refuse(state, event.request, "error", text, "try again when it has ended")
    if record is not None and record.cancelling and not event.rest:
        text = f"job {event.job_id} was cancelled; it can only be retried as a whole"
        return _refuse(state, event.request, "usage", text, "leave the selection of tasks out")
    return True


def on_forget(state: State, event: Forget) -> None:
    """Has nothing of an ended job kept."""
    job_id, owner = event.record.job_id, event.record.owner
    if job_id in state.forgetting:
        _refuse(state, event.request, "not-found", f"there is no job {job_id}")
        return
    if _is_anothers(state, event, job_id, owner):
        return
    if state.job(job_id) is not None:
        hint = f"`kestrelctl job cancel {job_id}` first"
        _refuse(state, event.request, "usage", f"job {job_id} is active", hint)
        return
    state.forgetting.add(job_id)
    state.record(JobForgotten(job_id))
    state.emit(Feed(event=JobClosed(at=event.at, cause=event.cause, job_id=job_id)))
    state.emit(Answer(request=event.request, job_id=job_id))


def _bring_back(state: State, job: Job, index: int, was: str, *, tell: bool) -> None:
    """Makes a task ready that ended badly.

    Args:
        was: the final state that it had.
        tell: whether the story tells it of the task.
    """
    setattr(job.counts, was, getattr(job.counts, was) - 1)
    task = job.live[index] = Task(job, index, Standing.READY)
    task.concluded = state.next_number - 1  # what was sent before is over
    job.make_ready(task)
    if tell:
        state.tell(job, index, "retried", detail=f"it was {was}")
    remember(state, task, TaskState.WAITING, "", None)


def _is_anothers(state: State, event: Cancel | Retry | Forget, job_id: int, owner: str) -> bool:
    """Whether a job is not for this user to change; if so, the user has been told."""
    if owner == event.by or event.admin:
        return False
    _refuse(state, event.request, "not-allowed", f"job {job_id} belongs to {owner}")
    return True


def _refuse(state: State, request: str, code: str, message: str, hint: str = "") -> bool:
    state.emit(Answer(request=request, error=code, message=message, hint=hint))
    return False
