"""Tasks that wait for the task of the same index of another job (`JobSpec.after_each`).

A task may start when the end of the parent's task is durable, not before: a manager that is killed
would run the parent's task again. A task that is cancelled because of the parent's is cancelled at
once: its record comes behind that of the parent's task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from kestrelctl.core.attempts.endings import finish, remember
from kestrelctl.core.attempts.table import withdraw
from kestrelctl.core.effects import Feed
from kestrelctl.core.events import Retry, TasksClosed
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.jobs.pairing import TaskPairing
from kestrelctl.core.model.index_ranges import IndexRange, IndexRanges, as_ranges
from kestrelctl.core.model.job.after import IfParentFails
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import EndedTasks, TaskRecord
from kestrelctl.core.model.wording import plural
from kestrelctl.core.state import Refused, State


def why_unpaired(
    state: State, owner: str, spec: JobSpec, ended: EndedTasks | None
) -> Refused | None:
    """Tells why the tasks of a job may not wait for those of the job that its spec names.

    Args:
        ended: that job, if the store knows it as ended.

    Returns:
        Code, text and hint of a refusal; None if they may, or if the spec names no job.
    """
    if not spec.after_each:
        return None
    parent = state.job(spec.after_each)
    if parent is not None and parent.owner == owner:
        return why_unlike(spec, parent.spec, f"job {parent.id}")
    record = None if ended is None else ended.record
    if record is None or record.owner != owner or record.job_id in state.forgetting:
        text = f"there is no job {spec.after_each}"
        return "not-found", text, "`kestrelctl job list` shows yours"
    return why_unlike(spec, record.spec, f"job {record.job_id}")


def why_unlike(spec: JobSpec, parent: JobSpec, whose: str) -> Refused | None:
    """Tells why the tasks of one job cannot wait for those of another, one for one.

    Args:
        whose: the other job, in words.

    Returns:
        Code, text and hint of a refusal; None if they can.
    """
    if parent.service:
        why = f"{whose} is a service: its tasks never end by themselves"
    elif parent.span > 1:
        why = f"{whose} spans workers: its tasks end together"
    elif parent.count != spec.count:
        why = f"it has {plural(spec.count, 'task')}, and {whose} has {parent.count:,}"
    else:
        return None
    text = f"tasks of {spec.name or 'the job'} cannot wait one for one: {why}"
    return "usage", text, "--after waits for the whole job"


def pair(state: State, job: Job, ended: EndedTasks | None) -> None:
    """Makes the tasks of a job wait for those of the job that its spec names.

    Tasks that are cancelled because of an earlier end are cancelled at once; the others hear of
    such ends when everything that is so now is durable.

    Args:
        ended: the parent, if it is not active.
    """
    done, bad = _begin(state, job, ended)
    if job.pairing is not None and (done or bad):
        parent = job.pairing.parent
        closed = TasksClosed(at=state.at, cause=state.cause, job_id=parent, done=done, bad=bad)
        state.emit(Feed(event=closed, urgent=True))


def pair_again(state: State, job: Job, ended: EndedTasks | None) -> None:
    """Does the same for a job from the store: its cancelled tasks have been counted before."""
    pair(state, job, ended)
    if job.pairing is not None:
        state.totals.tasks_cancelled -= job.pairing.cancelled


def pair_restored(state: State, job: Job, ended: EndedTasks | None) -> None:
    """Does the same after a restart, when everything that is known is durable."""
    if not job.spec.after_each or job.cancelling:
        return
    pairing = _bind(state, job)
    if ended is None and state.job(pairing.parent) is None:
        # The parent is forgotten: only tasks that had started were brought back (`why_orphaned`).
        pairing.behind.clear()
    done, pairing.unsettled = _how_far(state, pairing.parent, ended)
    _settle(state, job, pairing, done, [])


def settle_restored(state: State) -> None:
    """Does what was left to do when the manager ended: cancels again what waits in vain.

    This is not done before the manager is connected: it may end jobs.
    """
    paired = [job for job in state.jobs.values() if job.pairing is not None]
    before = sum(job.pairing.cancelled for job in paired if job.pairing is not None)
    for job in paired:
        pairing = job.pairing
        if pairing is not None and pairing.unsettled:
            bad, pairing.unsettled = pairing.unsettled, []
            _settle_behind(state, job.id, [], _settle(state, job, pairing, [], bad))
    again = sum(job.pairing.cancelled for job in paired if job.pairing is not None) - before
    state.totals.tasks_cancelled -= again
    state.totals.tasks_restored -= again


def why_orphaned(state: State, event: Retry) -> str | None:
    """Tells why an ended job whose tasks wait for those of a forgotten one cannot be brought back;
    None if it can: if only tasks come back that had started.
    """
    record = event.record
    parent = 0 if record is None else record.spec.after_each
    there = state.job(parent) is not None or event.paired is not None
    if record is None or not parent or (there and parent not in state.forgetting):
        return None
    never_started = record.cursor < record.spec.count
    if not never_started and all(was != TaskState.CANCELLED for _, was in event.indexes):
        return None
    return f"tasks of job {record.job_id} wait for those of job {parent}, which is forgotten"


def _settle_behind(
    state: State, parent: int, done: list[IndexRange], bad: list[IndexRange]
) -> None:
    """Settles the tasks that wait for these, and those that wait for tasks cancelled by that."""
    to_do = deque([(parent, done, bad)])
    while to_do:
        parent, done, bad = to_do.popleft()
        for child in list(state.pairs.get(parent, {}).values()):
            if child.pairing is not None:
                cancelled = _settle(state, child, child.pairing, done, bad)
                if cancelled:
                    to_do.append((child.id, [], cancelled))


def feed_ends(state: State, records: Iterable[TaskRecord]) -> None:
    """Tells the jobs that wait for them of these ends when they are durable, job by job."""
    found: dict[int, tuple[list[int], list[int]]] = {}
    for record in records:
        if record.job_id in state.pairs:
            done, bad = found.setdefault(record.job_id, ([], []))
            (done if record.state is TaskState.DONE else bad).append(record.index)
    for job_id, (done, bad) in found.items():
        closed = TasksClosed(
            at=state.at,
            cause=state.cause,
            job_id=job_id,
            done=as_ranges(sorted(done)),
            bad=as_ranges(sorted(bad)),
        )
        idle = any(not child.waiting for child in state.pairs[job_id].values())
        state.emit(Feed(event=closed, urgent=idle))


def feed_cancel(state: State, job: Job) -> None:
    """Does the same for tasks that a cancel of their job found beyond its cursor."""
    if job.id in state.pairs and job.never_started:
        bad = [(job.cursor, job.spec.count - 1)]
        closed = TasksClosed(at=state.at, cause=state.cause, job_id=job.id, bad=bad)
        state.emit(Feed(event=closed))


def on_tasks_closed(state: State, event: TasksClosed) -> None:
    """Lets tasks start, or cancels them, when the parent's tasks have ended durably.

    A task that was brought back meanwhile has not ended after all.
    """
    parent, bad = state.jobs.get(event.job_id), event.bad
    if parent is not None and not parent.cancelling:
        bad = [found for each in bad for found in parent.bad.within(*each)]
    _settle_behind(state, event.job_id, event.done, bad)


def revive(state: State, job: Job, ranges: list[IndexRange]) -> None:
    """Makes the tasks behind these wait again: these were brought back."""
    to_do = deque([(job.id, ranges)])
    while to_do:
        parent, ranges = to_do.popleft()
        for child in list(state.pairs.get(parent, {}).values()):
            pairing = child.pairing
            if pairing is None:
                continue
            back = [found for each in ranges for found in pairing.in_vain.within(*each)]
            for first, last in back:
                pairing.in_vain.discard(first, last)
                if pairing.cancels:
                    _bring_back(state, child, pairing, first, last)
                else:
                    pairing.ended.discard(first, last)
                    pairing.free.discard(max(first, child.cursor), last)
            if pairing.cancels and back:
                to_do.append((child.id, back))
            state.touch_job(child)


def put_behind(state: State, job: Job, index: int) -> None:
    """Brings a cancelled task back; it waits for the parent's task."""
    pairing = job.pairing
    if pairing is None:
        return
    job.counts.cancelled -= 1
    job.bad.discard(index, index)
    task = job.live[index] = Task(job, index, Standing.BEHIND)
    task.concluded = task.retried_after = state.next_number - 1
    pairing.behind.add(index)
    remember(state, task, TaskState.WAITING, "", None)


def _begin(
    state: State, job: Job, ended: EndedTasks | None
) -> tuple[list[IndexRange], list[IndexRange]]:
    """Makes a job wait; cancels the tasks that would wait in vain.

    Returns:
        The tasks of its parent that are done, and those that have ended otherwise.
    """
    if not job.spec.after_each or job.cancelling:
        return [], []
    pairing = _bind(state, job)
    done, bad = _how_far(state, pairing.parent, ended)
    if pairing.otherwise is not IfParentFails.RUN:  # RUN waits until the end is durable
        cancelled = _settle(state, job, pairing, [], bad)
        _settle_behind(state, job.id, [], cancelled)
    return done, bad


def _bind(state: State, job: Job) -> TaskPairing:
    """Makes a job hear from now on what becomes of its parent's tasks."""
    pairing = job.pairing = TaskPairing(job.spec.after_each, job.spec.if_parent_fails)
    pairing.behind.update(job.live)
    state.pairs.setdefault(pairing.parent, {})[job.id] = job
    return pairing


def _how_far(
    state: State, parent: int, ended: EndedTasks | None
) -> tuple[list[IndexRange], list[IndexRange]]:
    """Finds the tasks of a job that are done, and those that have ended otherwise."""
    job = state.job(parent)
    if job is None:
        bad = [] if ended is None else ended.bad
        count = 0 if ended is None else ended.record.spec.count
        return IndexRanges(bad).gaps(0, count - 1), bad
    bad = list(job.bad)
    if job.cancelling and job.never_started:
        bad.append((job.cursor, job.spec.count - 1))
    not_done = IndexRanges(bad)
    for first, last in as_ranges(sorted(job.live)):
        not_done.add(first, last)
    return not_done.gaps(0, job.cursor - 1), bad


def _settle(
    state: State, job: Job, pairing: TaskPairing, done: list[IndexRange], bad: list[IndexRange]
) -> list[IndexRange]:
    """Frees tasks and cancels others; returns those of the latter that were beyond the cursor."""
    if not job.waiting:
        job.waits_since = state.at  # nobody let it starve
    news: list[IndexRange] = []
    for each in bad:  # they may overlap: cancelled with its job, and before that for its parent's
        gaps = pairing.in_vain.gaps(*each)
        for first, last in gaps:
            pairing.in_vain.add(first, last)
        news += gaps
    if pairing.otherwise is IfParentFails.RUN:
        done = [*done, *bad]
    for first, last in done:
        _free(job, pairing, first, last)
    state.touch_job(job)
    if not pairing.cancels:
        return []
    for first, last in news:
        _cancel(state, job, pairing, first, last)
    return [(max(first, job.cursor), last) for first, last in news if last >= job.cursor]


def _free(job: Job, pairing: TaskPairing, first: int, last: int) -> None:
    pairing.ended.add(first, last)
    pairing.free.add(max(first, job.cursor), last)
    if not pairing.behind:
        return
    for index in reversed(_behind(pairing, first, last)):
        pairing.behind.discard(index)
        task = job.live[index]
        if task.standing is Standing.BEHIND:
            job.make_ready(task)


def _cancel(state: State, job: Job, pairing: TaskPairing, first: int, last: int) -> None:
    for index in _behind(pairing, first, last):
        task = job.live[index]
        state.tell(job, index, "cancelled", cause=f"job {pairing.parent}")
        withdraw(state, task)
        finish(state, task, TaskState.CANCELLED, "", None)
    first = max(first, job.cursor)
    if first > last:
        return
    n = last - first + 1
    pairing.cancelled += n
    job.counts.cancelled += n
    state.totals.tasks_cancelled += n
    job.note_bad(first, last)


def _bring_back(state: State, job: Job, pairing: TaskPairing, first: int, last: int) -> None:
    for index in range(first, min(last, job.cursor - 1) + 1):
        if index not in job.live and index in job.bad:
            put_behind(state, job, index)
            state.totals.tasks_submitted += 1
    n = job.bad.discard(max(first, job.cursor), last)
    pairing.cancelled -= n
    job.counts.cancelled -= n
    state.totals.tasks_submitted += n


def _behind(pairing: TaskPairing, first: int, last: int) -> list[int]:
    """Lists the tasks in a range that wait below the cursor, in rising order."""
    behind = pairing.behind
    if last - first < len(behind):
        return [index for index in range(first, last + 1) if index in behind]
    return sorted(index for index in behind if first <= index <= last)
