"""Jobs come in, are cancelled, and are brought back."""

from __future__ import annotations

import msgspec

from kestrelctl.core.attempts.adoption import reach
from kestrelctl.core.attempts.cancelling import cancel_all, cancel_each
from kestrelctl.core.attempts.endings import remember
from kestrelctl.core.attempts.pairs import (
    pair,
    pair_again,
    put_behind,
    why_orphaned,
    why_unlike,
    why_unpaired,
)
from kestrelctl.core.attempts.pairs import revive as revive_tasks
from kestrelctl.core.effects import Answer, Feed, NoticesSettled
from kestrelctl.core.events import (
    Cancel,
    Expire,
    Forget,
    JobClosed,
    JobStored,
    OwnersTold,
    Retry,
    Submit,
    SubmitGraph,
)
from kestrelctl.core.features.after import keep_outcome, retried_in_vain, revive, why_not
from kestrelctl.core.features.deadline import DEADLINES
from kestrelctl.core.features.table import (
    enter,
    tell_ended,
    tell_stored,
    tell_submitted,
    why_refused,
)
from kestrelctl.core.handlers.admission import over_quota, too_large
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.jobs.queued_bytes import account_of, encoded_bytes
from kestrelctl.core.model.end_reason import NO_REASON
from kestrelctl.core.model.files.parent_files import located
from kestrelctl.core.model.index_ranges import IndexRange, IndexRanges, as_ranges
from kestrelctl.core.model.job.after import shifted
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobForgotten, OwnerTold, Swept
from kestrelctl.core.model.wording import plural
from kestrelctl.core.scheduling.judgement import problem_with_evaluation
from kestrelctl.core.state import State

#: The most different pairs of requirements and rank that the active jobs of one user may have.
MOST_EXPRESSIONS = 100
#: A task that was never started can be cancelled on its own if at most so many wait before it: each
#: task that is passed over needs an object.
MOST_PASSED_OVER = 100_000


def on_submit(state: State, event: Submit) -> None:
    """Takes a job in; its tasks run, and the user hears of it, once it is durable.

    A submission that comes again under its key is answered with the job that it has made.
    """
    if event.key and _was_submitted(state, event, event.spec, event.spec.count):
        return
    size_bytes = encoded_bytes(event.spec)
    if not _may_submit(state, event, [event.spec], size_bytes):
        return
    refusal = why_not(state, event.owner, [event.spec.after], [event.spec.after], event.ended)
    if refusal is not None:
        state.refuse(event.request, *refusal)
        return
    ended = event.paired.get(event.spec.after_each)
    refusal = why_unpaired(state, event.owner, event.spec, ended)
    if refusal is not None:
        state.refuse(event.request, *refusal)
        return
    job = _take_in(state, event, event.spec, size_bytes)
    if event.key:
        job.key = event.key
        state.keys[event.owner, event.key] = job.id
    state.record(job.record())
    state.emit(Feed(event=JobStored(at=event.at, cause=event.cause, job_id=job.id)))
    state.emit(Answer(request=event.request, job_id=job.id, tasks=event.spec.count))


def on_submit_graph(state: State, event: SubmitGraph) -> None:
    """Takes several jobs in, all or none; their ids are in a row, in the order of the event."""
    tasks = sum(spec.count for spec in event.specs)
    if event.key and _was_submitted(state, event, event.specs[0], tasks):
        return
    sizes = [encoded_bytes(spec) for spec in event.specs]
    if not _may_submit(state, event, event.specs, sum(sizes)):
        return
    first = state.next_job_id
    afters = [
        (*spec.after, *shifted(after, first))
        for spec, after in zip(event.specs, event.after, strict=True)
    ]
    named = [spec.after for spec in event.specs]
    refusal = why_not(state, event.owner, named, afters, event.ended)
    if refusal is not None:
        state.refuse(event.request, *refusal)
        return
    for spec, each in zip(event.specs, event.after_each, strict=True):
        refusal = why_unpaired(state, event.owner, spec, event.paired.get(spec.after_each))
        if each is not None:
            parent = event.specs[each]
            refusal = why_unlike(spec, parent, parent.name or f"job {each + 1} of them")
        if refusal is not None:
            state.refuse(event.request, *refusal)
            return
    for spec, after, each, size_bytes in zip(
        event.specs, afters, event.after_each, sizes, strict=True
    ):
        after_each = spec.after_each if each is None else first + each
        if after or after_each:
            files = located(spec.program.parent_files, first)
            spec = msgspec.structs.replace(
                spec,
                after=after,
                after_each=after_each,
                program=msgspec.structs.replace(spec.program, parent_files=files),
            )
            size_bytes = encoded_bytes(spec)  # a little more, now that ids of its parents are known
        job = _take_in(state, event, spec, size_bytes)
        if event.key and job.id == first:
            job.key = event.key
            state.keys[event.owner, event.key] = first
        state.record(job.record())
    stored = JobStored(at=event.at, cause=event.cause, job_id=first, jobs=len(event.specs))
    state.emit(Feed(event=stored))
    state.emit(Answer(request=event.request, job_id=first, tasks=tasks))


def _may_submit(
    state: State, event: Submit | SubmitGraph, specs: list[JobSpec], size_bytes: int
) -> bool:
    """Whether a user may have these jobs too; if not, he has been told why.

    Args:
        size_bytes: the encoded size of all of them together.
    """
    if _has_too_many_expressions(state, event.request, event.owner, specs):
        return False
    for spec in specs:
        problem = problem_with_evaluation(spec)
        if problem is not None:
            hint = "docs/matching.md says how expressions are written"
            return state.refuse(event.request, "usage", problem, hint)
        refused = why_refused(state, spec, event.at)
        if refused is not None:
            return state.refuse(event.request, *refused)
    account = account_of(event.owner, specs[0].guest)
    if _refuse_too_large(state, event.request, account, size_bytes):
        return False
    tasks = sum(spec.count for spec in specs)
    return not refuse_over_quota(state, event.request, event.owner, tasks)


def _refuse_too_large(state: State, request: str, account: str, more_bytes: int) -> bool:
    """Whether an account's jobs may not grow so much; if so, whoever asked has been told."""
    found = too_large(state, account, more_bytes)
    if found is not None:
        text, cause, hint = found
        state.refuse(request, "over-quota", text, hint, cause)
    return found is not None


def _take_in(state: State, event: Submit | SubmitGraph, spec: JobSpec, size_bytes: int) -> Job:
    """Makes a new job; the caller records it."""
    job = state.new_job(state.next_job_id, event.owner, spec, event.at, size_bytes)
    state.next_job_id += 1
    state.totals.jobs_submitted += 1
    state.totals.tasks_submitted += spec.count
    enter(state, job, event.ended)
    tell_submitted(state, job)
    pair(state, job, event.paired.get(spec.after_each))
    return job


def _has_too_many_expressions(state: State, request: str, owner: str, specs: list[JobSpec]) -> bool:
    """Whether one user would make everybody's matches slower; if so, the user has been told.

    Each expression is evaluated for each class of workers, in each pass.
    """
    asked = {(spec.requirements, spec.rank) for spec in specs if spec.requirements or spec.rank}
    if not asked:
        return False
    used = {
        (job.spec.requirements, job.spec.rank)
        for job in state.jobs.values()
        if job.owner == owner and (job.spec.requirements or job.spec.rank)
    }
    together = len(used | asked)
    if together <= MOST_EXPRESSIONS or asked <= used:
        return False
    text = f"your active jobs have {len(used)} different requirements and ranks, which is the most"
    if len(used) < MOST_EXPRESSIONS:
        text = (
            f"your active jobs would have {together} different requirements and ranks,"
            f" and {MOST_EXPRESSIONS} is the most"
        )
    hint = "wait until some of them have ended, or put what differs into tags or the items of a job"
    state.refuse(request, "usage", text, hint)
    return True


def _was_submitted(state: State, event: Submit | SubmitGraph, wanted: JobSpec, tasks: int) -> bool:
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
    if spec == wanted:
        state.emit(Answer(request=event.request, job_id=job_id, tasks=tasks, repeated=True))
    else:
        text = f"the key {event.key!r} belongs to job {job_id}, which is another one"
        hint = "give each job a key of its own; the same key is for sending the same job again"
        state.refuse(event.request, "usage", text, hint)
    return True


def on_owners_told(state: State, event: OwnersTold) -> None:
    """Records that owners know of the ends of their jobs.

    If a job was brought back meanwhile, and has perhaps ended again, its new end is another one.
    """
    for job_id, ended_at in event.ends:
        state.record(OwnerTold(job_id, ended_at, event.by_mail))
    state.emit(NoticesSettled(by_mail=event.by_mail))


def on_cancel(state: State, event: Cancel) -> None:
    """Drops what waits and kills what runs; the job ends when the last of that is reported."""
    job = state.jobs.get(event.job_id)
    if job is None:
        state.refuse(event.request, "not-found", f"job {event.job_id} is not active")
        return
    if event.indexes:
        _cancel_tasks(state, event, job)
        return
    stopped = job.remaining
    cancel_all(state, job)
    state.emit(Answer(request=event.request, job_id=job.id, tasks=stopped))


def _cancel_tasks(state: State, event: Cancel, job: Job) -> None:
    """Does the same for single tasks. Tasks that have ended stay as they are."""
    furthest = max(event.indexes)
    if furthest >= job.cursor and not job.cancelling:
        # Tasks that were passed over before count, or it could be done again and again.
        waiting = len(job.live) - job.running + furthest - job.cursor
        if waiting >= MOST_PASSED_OVER:
            task_id = job.spec.task_id(furthest)
            text = f"{waiting:,} tasks of job {job.id} wait before task {task_id}"
            hint = f"a task can be cancelled when it is one of the next {MOST_PASSED_OVER:,}"
            state.refuse(event.request, "usage", text, hint)
            return
        reach(state, job, furthest)
    found = [job.live[index] for index in dict.fromkeys(event.indexes) if index in job.live]
    cancel_each(state, job, found)
    state.emit(Answer(request=event.request, job_id=job.id, tasks=len(found)))


def on_job_stored(state: State, event: JobStored) -> None:
    """Lets the tasks of jobs run that are durable now."""
    jobs = [state.jobs.get(event.job_id + place) for place in range(event.jobs)]
    there = [job for job in jobs if job is not None]
    for job in there:
        job.stored = True
        job.lighten()
        state.keys.pop((job.owner, job.key), None)
        state.touch_job(job)
    for job in there:
        tell_stored(state, job)


def on_job_closed(state: State, event: JobClosed) -> None:
    """Drops what was kept about a job until the store had the last word."""
    ended = state.ending.pop(event.job_id, None)
    state.forgetting.discard(event.job_id)
    if ended is not None:
        tell_ended(state, ended)


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
        job.stopped_by = NO_REASON
        job.counts.cancelled -= job.never_started
        job.bad = IndexRanges(event.bad)
        job.bad.discard(job.cursor, job.spec.count)
        enter(state, job, event.ended)
        pair_again(state, job, event.paired)
    for index, was in reversed(event.indexes):
        if index not in job.live and index < job.cursor:
            _bring_back_here(state, job, index, was, tell=not event.rest)
    brought_back = job.remaining - before
    if brought_back:
        revive(state, job.id)
        revive_tasks(state, job, _brought_back(event, job))
        job.waits_since = event.at
        if event.rest:
            state.tell(job, -1, "retried", detail=plural(brought_back, "task"))
        state.totals.jobs_submitted += not before
        state.totals.tasks_submitted += brought_back
        state.record(job.record())
        state.touch_job(job)
    elif not before:
        state.remove_job(job)
    if not brought_back and job.pairing is not None:
        parent = job.pairing.parent
        text = f"the tasks of job {job.id} wait for tasks of job {parent} that did not end well"
        hint = f"`kestrelctl job retry {parent}` brings both back"
        state.refuse(event.request, "usage", text, hint)
        return
    state.emit(Answer(request=event.request, job_id=job.id, tasks=brought_back))


def _bring_back_here(state: State, job: Job, index: int, was: str, *, tell: bool) -> None:
    """Brings a task back, unless the parent's task would end it at once; a cancelled task waits for
    the parent's task if that has not ended yet.
    """
    pairing = job.pairing
    if pairing is None or was != TaskState.CANCELLED or index in pairing.ended:
        bring_back(state, job, index, was, tell=tell)
    elif not (pairing.cancels and index in pairing.in_vain):
        put_behind(state, job, index)


def _brought_back(event: Retry, job: Job) -> list[IndexRange]:
    """The tasks that a retry has brought back; and some that may run, for which nobody waits."""
    found = as_ranges(index for index, _ in event.indexes if index in job.live)
    if event.record is not None:
        found += job.bad.gaps(job.cursor, job.spec.count - 1)
    return found


def _may_retry(state: State, event: Retry) -> bool:
    """Whether the tasks may be brought back; if not, the user has been told why."""
    job, record = state.jobs.get(event.job_id), event.record
    if event.job_id in state.ending:
        text = f"job {event.job_id} is ending just now"
        return state.refuse(event.request, "error", text, "try again")
    if (job is None and record is None) or event.job_id in state.forgetting:
        return state.refuse(event.request, "not-found", f"there is no job {event.job_id}")
    owner = job.owner if job else record.owner if record else ""
    if job is not None and job.cancelling:
        text = f"job {job.id} is being cancelled"
        return state.refuse(event.request, "error", text, "try again when it has ended")
    left_seconds = None
    if record is not None:
        left_seconds = DEADLINES.left_seconds(state, record.spec, record.submitted_at)
    if left_seconds is not None and left_seconds <= 0:
        text = f"the deadline of job {event.job_id} is over"
        return state.refuse(event.request, "usage", text, "submit it anew, with another one")
    never_started = record is not None and record.cursor < record.spec.count
    if record is not None and (record.cancelling or never_started) and not event.rest:
        what = "was cancelled" if record.cancelling else "has tasks that never started"
        text = f"job {event.job_id} {what}; it can only be retried as a whole"
        return state.refuse(event.request, "usage", text, "leave the selection of tasks out")
    orphaned = why_orphaned(state, event)
    if orphaned is not None:
        return state.refuse(event.request, "usage", orphaned, "submit it anew")
    if job is None and record is not None:
        if _has_too_many_expressions(state, event.request, owner, [record.spec]):
            return False
        account = account_of(owner, record.spec.guest)
        if _refuse_too_large(state, event.request, account, encoded_bytes(record.spec)):
            return False
        refusal = retried_in_vain(state, record, event.ended)
        if refusal is not None:
            return state.refuse(event.request, *refusal)
    return not refuse_over_quota(state, event.request, owner, _to_bring_back(event, job))


def _to_bring_back(event: Retry, job: Job | None) -> int:
    """Counts the tasks that a retry gives back to the queue, as far as one can tell before."""
    if job is not None:
        return sum(index not in job.live for index, _ in event.indexes)
    record = event.record
    never_started = record.spec.count - record.cursor if record is not None else 0
    return len(event.indexes) + never_started


def on_forget(state: State, event: Forget) -> None:
    """Forgets an ended job altogether."""
    job_id = event.record.job_id
    if job_id in state.forgetting:
        state.refuse(event.request, "not-found", f"there is no job {job_id}")
        return
    if job_id in state.pairs:
        child = next(iter(state.pairs[job_id]))
        text = f"tasks of job {child} wait for those of job {job_id}"
        state.refuse(event.request, "usage", text, f"wait for job {child}, or cancel it")
        return
    if state.job(job_id) is not None:
        hint = f"`kestrelctl job cancel {job_id}` first"
        state.refuse(event.request, "usage", f"job {job_id} is active", hint)
        return
    state.forgetting.add(job_id)
    keep_outcome(state, job_id)
    state.record(JobForgotten(job_id))
    state.emit(Feed(event=JobClosed(at=event.at, cause=event.cause, job_id=job_id)))
    state.emit(Answer(request=event.request, job_id=job_id))


def on_expire(state: State, event: Expire) -> None:
    """Forgets jobs that ended long ago, but for those that were brought back."""
    for job_id in event.job_ids:
        kept = state.job(job_id) is not None or job_id in state.pairs
        if not kept and job_id not in state.forgetting:
            state.forgetting.add(job_id)
            state.totals.jobs_expired += 1
            keep_outcome(state, job_id)
            state.record(JobForgotten(job_id))
            state.emit(Feed(event=JobClosed(at=event.at, cause=event.cause, job_id=job_id)))
    if event.sweep:
        state.record(Swept())


def bring_back(state: State, job: Job, index: int, was: str, *, tell: bool) -> None:
    """Makes a task ready that ended badly.

    Args:
        was: the final state that it had.
        tell: whether the story tells it of the task.
    """
    setattr(job.counts, was, getattr(job.counts, was) - 1)
    job.bad.discard(index, index)
    task = job.live[index] = Task(job, index, Standing.READY)
    task.concluded = task.retried_after = state.next_number - 1  # what was sent before is over
    job.make_ready(task)
    if tell:
        state.tell(job, index, "retried", detail=f"it was {was}")
    remember(state, task, TaskState.WAITING, "", None)


def refuse_over_quota(state: State, request: str, owner: str, more: int) -> bool:
    """Whether a user may not have so many more tasks; if so, whoever asked has been told."""
    found = over_quota(state, state.sharers.of(owner), more)
    if found is not None:
        state.refuse(request, "over-quota", *found)
    return found is not None
