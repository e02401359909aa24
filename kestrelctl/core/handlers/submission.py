"""Jobs come in, are cancelled, and are brought back."""

from __future__ import annotations

import msgspec

from kestrelctl.core.attempts.adoption import reach
from kestrelctl.core.attempts.endings import finish, remember
from kestrelctl.core.attempts.table import withdraw
from kestrelctl.core.effects import Answer, Feed, Kill, NoticesSettled
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
from kestrelctl.core.handlers.admission import over_quota, too_large
from kestrelctl.core.handlers.pairs import (
    feed_cancel,
    pair,
    pair_again,
    put_behind,
    why_orphaned,
    why_unlike,
    why_unpaired,
)
from kestrelctl.core.handlers.pairs import revive as revive_tasks
from kestrelctl.core.handlers.waits import (
    keep_outcome,
    retried_in_vain,
    revive,
    wait_for_parents,
    why_not,
)
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.jobs.queued_bytes import account_of, encoded_bytes
from kestrelctl.core.model.end_reason import NO_REASON
from kestrelctl.core.model.files.parent_files import located
from kestrelctl.core.model.index_ranges import IndexRange, IndexRanges, as_ranges
from kestrelctl.core.model.job.after import shifted
from kestrelctl.core.model.job.hold import MAX_HOLD_REASON_CHARACTERS, POOL, SUBMITTED_SO, Hold
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.records import JobForgotten, OwnerTold, Swept
from kestrelctl.core.scheduling.judgement import problem_with_evaluation
from kestrelctl.core.state import State

#: So many different pairs of requirements and rank the active jobs of one user may have.
MOST_EXPRESSIONS = 100
#: A task that was never started can be cancelled by itself if at most so many wait before it: each
#: that is passed over needs an object.
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
        refuse(state, event.request, *refusal)
        return
    ended = event.paired.get(event.spec.after_each)
    refusal = why_unpaired(state, event.owner, event.spec, ended)
    if refusal is not None:
        refuse(state, event.request, *refusal)
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
        refuse(state, event.request, *refusal)
        return
    for spec, each in zip(event.specs, event.after_each, strict=True):
        refusal = why_unpaired(state, event.owner, spec, event.paired.get(spec.after_each))
        if each is not None:
            parent = event.specs[each]
            refusal = why_unlike(spec, parent, parent.name or f"job {each + 1} of them")
        if refusal is not None:
            refuse(state, event.request, *refusal)
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
        size_bytes: of all of them together, as encoded.
    """
    if _has_too_many_expressions(state, event.request, event.owner, specs):
        return False
    for spec in specs:
        problem = problem_with_evaluation(spec)
        if problem is not None:
            hint = "docs/matching.md says how expressions are written"
            return refuse(state, event.request, "usage", problem, hint)
        past_seconds = state.past_deadline_seconds(spec, event.at)
        if past_seconds is not None and past_seconds >= 0:
            text = f"the deadline was {past_seconds:,.0f} s ago"
            return refuse(state, event.request, "usage", text, "give one that is still to come")
    account = account_of(event.owner, specs[0].guest)
    if _refuse_too_large(state, event.request, account, size_bytes):
        return False
    tasks = sum(spec.count for spec in specs)
    return not refuse_over_quota(state, event.request, event.owner, tasks)


def _refuse_too_large(state: State, request: str, account: str, more_bytes: int) -> bool:
    """Whether an account may not have so much more of jobs; if so, whoever asked has been told."""
    found = too_large(state, account, more_bytes)
    if found is not None:
        text, cause, hint = found
        refuse(state, request, "over-quota", text, hint, cause)
    return found is not None


def _take_in(state: State, event: Submit | SubmitGraph, spec: JobSpec, size_bytes: int) -> Job:
    """A new job; the caller has it recorded."""
    job = state.new_job(state.next_job_id, event.owner, spec, event.at, size_bytes)
    state.next_job_id += 1
    state.totals.jobs_submitted += 1
    state.totals.tasks_submitted += spec.count
    if spec.held:
        job.hold = Hold(event.owner, event.at, SUBMITTED_SO)
        state.tell(job, -1, "held", detail=SUBMITTED_SO)
    elif job.shape in state.supply.failed and spec.guest is None:
        job.hold = hold_of_failed(state, job.shape)
        state.tell(job, -1, "held", detail=job.hold.reason, cause=POOL)
    wait_for_parents(state, job, event.ended)
    pair(state, job, event.paired.get(spec.after_each))
    return job


def hold_of_failed(state: State, shape: Shape) -> Hold:
    """The pool's hold on jobs of a shape whose expressions cannot be evaluated."""
    refusal = state.supply.failed[shape]
    why = f"{refusal.wanted}: {refusal.found}"[:MAX_HOLD_REASON_CHARACTERS]
    return Hold(POOL, state.at, why)


def _has_too_many_expressions(state: State, request: str, owner: str, specs: list[JobSpec]) -> bool:
    """Whether one user would have everybody's matches take longer; if so, the user has been told.

    Each expression is held against each class of workers, in each pass.
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
    refuse(state, request, "usage", text, hint)
    return True


def on_job_stored(state: State, event: JobStored) -> None:
    """Lets the tasks of jobs run that are durable now."""
    for job_id in range(event.job_id, event.job_id + event.jobs):
        job = state.jobs.get(job_id)
        if job is not None:
            job.stored = True
            state.keys.pop((job.owner, job.key), None)
            state.touch_job(job)


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
        refuse(state, event.request, "usage", text, hint)
    return True


def on_owners_told(state: State, event: OwnersTold) -> None:
    """Has it remembered that owners know of the ends of their jobs.

    Of a job that was brought back meanwhile, and has perhaps ended again, that is another end.
    """
    for job_id, ended_at in event.ends:
        state.record(OwnerTold(job_id, ended_at, event.by_mail))
    state.emit(NoticesSettled(by_mail=event.by_mail))


def on_cancel(state: State, event: Cancel) -> None:
    """Drops what waits, kills what runs. The job ends when the last killed attempt is reported."""
    job = state.jobs.get(event.job_id)
    if job is None:
        refuse(state, event.request, "not-found", f"job {event.job_id} is not active")
        return
    if event.indexes:
        _cancel_tasks(state, event, job)
        return
    stopped = job.remaining
    cancel_all(state, job)
    state.emit(Answer(request=event.request, job_id=job.id, tasks=stopped))


def cancel_all(state: State, job: Job) -> None:
    """Drops what waits of a job, kills what runs. It ends when the last of that is reported.

    That ends a hold, and a wait for other jobs: there is nothing more to hold back.
    """
    job.hold = None
    state.dependencies.release(job)
    if not job.cancelling:
        state.tell(job, -1, "cancelled", detail=plural(job.remaining, "task"))
        job.counts.cancelled += job.to_start
        state.totals.tasks_cancelled += job.to_start
        job.cancelling = True
    state.unpair(job)
    stop(state, list(job.live.values()))
    state.record(job.record())
    feed_cancel(state, job)
    state.touch_job(job)


def _cancel_tasks(state: State, event: Cancel, job: Job) -> None:
    """The same for single tasks. Those that have ended stay as they are."""
    furthest = max(event.indexes)
    if furthest >= job.cursor and not job.cancelling:
        # Those that were passed over before count, or it could be done again and again.
        waiting = len(job.live) - job.running + furthest - job.cursor
        if waiting >= MOST_PASSED_OVER:
            task_id = job.spec.task_id(furthest)
            text = f"{waiting:,} tasks of job {job.id} wait before task {task_id}"
            hint = f"a task can be cancelled when it is one of the next {MOST_PASSED_OVER:,}"
            refuse(state, event.request, "usage", text, hint)
            return
        reach(state, job, furthest)
    found = [job.live[index] for index in dict.fromkeys(event.indexes) if index in job.live]
    cancel_each(state, job, found)
    state.emit(Answer(request=event.request, job_id=job.id, tasks=len(found)))


def cancel_each(state: State, job: Job, tasks: list[Task]) -> None:
    """Drops or kills these tasks of a job, and has it remembered that they are cancelled."""
    for task in tasks:
        if not task.is_unwanted:
            state.tell(job, task.index, "cancelled")
            task.cancelled = True
            if task.attempt is not None:
                remember(state, task, TaskState.CANCELLED, task.attempt.worker, None)
    stop(state, tasks)
    state.touch_job(job)


def stop(state: State, tasks: list[Task]) -> None:
    """Kills those of these tasks that run; the others are over."""
    kill: dict[str, list[int]] = {}
    for task in tasks:
        attempt = task.attempt
        if attempt is not None and state.workers[attempt.worker].online:
            kill.setdefault(attempt.worker, []).append(attempt.number)
        else:
            withdraw(state, task)
            finish(state, task, TaskState.CANCELLED, "", None)
    for jid, numbers in kill.items():
        state.emit(Kill(worker=jid, numbers=numbers))


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
        wait_for_parents(state, job, event.ended)
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
        refuse(state, event.request, "usage", text, hint)
        return
    state.emit(Answer(request=event.request, job_id=job.id, tasks=brought_back))


def _bring_back_here(state: State, job: Job, index: int, was: str, *, tell: bool) -> None:
    """Brings a task back, unless that of its parent would end it at once; one that was cancelled
    waits for that, if it has not ended yet.
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
        return refuse(state, event.request, "error", text, "try again")
    if (job is None and record is None) or event.job_id in state.forgetting:
        return refuse(state, event.request, "not-found", f"there is no job {event.job_id}")
    owner = job.owner if job else record.owner if record else ""
    if job is not None and job.cancelling:
        text = f"job {job.id} is being cancelled"
        return refuse(state, event.request, "error", text, "try again when it has ended")
    past_seconds = None
    if record is not None:
        past_seconds = state.past_deadline_seconds(record.spec, record.submitted_at)
    if past_seconds is not None and past_seconds >= 0:
        text = f"the deadline of job {event.job_id} is over"
        return refuse(state, event.request, "usage", text, "submit it anew, with another one")
    never_started = record is not None and record.cursor < record.spec.count
    if record is not None and (record.cancelling or never_started) and not event.rest:
        what = "was cancelled" if record.cancelling else "has tasks that never started"
        text = f"job {event.job_id} {what}; it can only be retried as a whole"
        return refuse(state, event.request, "usage", text, "leave the selection of tasks out")
    orphaned = why_orphaned(state, event)
    if orphaned is not None:
        return refuse(state, event.request, "usage", orphaned, "submit it anew")
    if job is None and record is not None:
        if _has_too_many_expressions(state, event.request, owner, [record.spec]):
            return False
        account = account_of(owner, record.spec.guest)
        if _refuse_too_large(state, event.request, account, encoded_bytes(record.spec)):
            return False
        refusal = retried_in_vain(state, record, event.ended)
        if refusal is not None:
            return refuse(state, event.request, *refusal)
    return not refuse_over_quota(state, event.request, owner, _to_bring_back(event, job))


def _to_bring_back(event: Retry, job: Job | None) -> int:
    """How many tasks a retry gives back to the queue, as far as one can tell before."""
    if job is not None:
        return sum(index not in job.live for index, _ in event.indexes)
    record = event.record
    never_started = record.spec.count - record.cursor if record is not None else 0
    return len(event.indexes) + never_started


def on_forget(state: State, event: Forget) -> None:
    """Has nothing of an ended job kept."""
    job_id = event.record.job_id
    if job_id in state.forgetting:
        refuse(state, event.request, "not-found", f"there is no job {job_id}")
        return
    if job_id in state.pairs:
        child = next(iter(state.pairs[job_id]))
        text = f"tasks of job {child} wait for those of job {job_id}"
        refuse(state, event.request, "usage", text, f"wait for job {child}, or cancel it")
        return
    if state.job(job_id) is not None:
        hint = f"`kestrelctl job cancel {job_id}` first"
        refuse(state, event.request, "usage", f"job {job_id} is active", hint)
        return
    state.forgetting.add(job_id)
    keep_outcome(state, job_id)
    state.record(JobForgotten(job_id))
    state.emit(Feed(event=JobClosed(at=event.at, cause=event.cause, job_id=job_id)))
    state.emit(Answer(request=event.request, job_id=job_id))


def on_expire(state: State, event: Expire) -> None:
    """Has nothing kept of jobs that ended long ago, but for those that were brought back."""
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
        refuse(state, request, "over-quota", *found)
    return found is not None


def refuse(
    state: State, request: str, code: str, message: str, hint: str = "", cause: str = ""
) -> bool:
    state.emit(Answer(request=request, error=code, message=message, cause=cause, hint=hint))
    return False
