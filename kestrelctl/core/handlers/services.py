"""Services: jobs whose tasks, their copies, are started again whenever they end, until a cancel."""

from __future__ import annotations

import msgspec

from kestrelctl.core.attempts.adoption import reach
from kestrelctl.core.attempts.cancelling import cancel_each
from kestrelctl.core.attempts.table import move_away
from kestrelctl.core.effects import Answer, Kill
from kestrelctl.core.events import ScaleService
from kestrelctl.core.handlers.submission import (
    bring_back,
    refuse_over_quota,
)
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.ending_rules import MOST_COPIES
from kestrelctl.core.model.wording import plural
from kestrelctl.core.state import State


def copies_to_move(worker: Worker, why: str) -> list[int]:
    """The copies of services at a worker that are wanted elsewhere from now on, by number.

    Those that were before are not among them: who is asked twice to end has no grace any more.

    Args:
        why: what is the matter with the worker, in words.
    """
    numbers = [
        number
        for number, task in worker.held.items()
        if task.job.spec.service and not task.is_unwanted
        if task.attempt is not None and not task.attempt.moved_for
    ]
    move_away(worker, numbers, why)
    return numbers


def move_copies(state: State, worker: Worker, why: str) -> None:
    """Stops the copies at a worker that shall get nothing new: they are started elsewhere.

    They would keep it from ever being empty.

    Args:
        why: what is the matter with the worker, in words.
    """
    numbers = copies_to_move(worker, why)
    if numbers and worker.online:
        state.emit(Kill(worker=worker.jid, numbers=numbers))


def on_scale(state: State, event: ScaleService) -> None:
    """Keeps more copies of a service running from now on, or fewer."""
    job = state.jobs.get(event.job_id)
    if job is None:
        state.refuse(event.request, "not-found", f"job {event.job_id} is not active")
        return
    problem, hint = _problem(job, event.copies)
    if problem:
        state.refuse(event.request, "usage", problem, hint)
        return
    have = job.never_started + sum(not task.cancelled for task in job.live.values())
    if refuse_over_quota(state, event.request, job.owner, event.copies - have):
        return
    if event.copies < have:
        _shrink(state, job, event.copies)
    elif event.copies > have:
        _grow(state, job, event.copies - have)
    if event.copies != have:
        wanted = plural(event.copies, "copy", "copies")
        state.tell(job, -1, "scaled", detail=f"from {have:,} to {wanted}")
        state.record(job.record())
        state.touch_job(job)
    changed = abs(event.copies - have)
    state.emit(Answer(request=event.request, job_id=job.id, tasks=changed))


def _problem(job: Job, copies: int) -> tuple[str, str]:
    """Tells why a job cannot have so many copies, and what to do instead; empty if it can."""
    if not job.spec.service:
        return f"job {job.id} is no service", "`submit --service --copies 3` makes one"
    if job.cancelling:
        return f"job {job.id} is being cancelled", ""
    if job.has_items:
        return f"each copy of job {job.id} has a line of its own", "submit another service"
    if not 1 <= copies <= MOST_COPIES:
        hint = f"`kestrelctl job cancel {job.id}` ends it" if copies < 1 else ""
        return f"a service has 1 to {MOST_COPIES:,} copies, not {copies:,}", hint
    return "", ""


def _shrink(state: State, job: Job, copies: int) -> None:
    """Stops the copies with the highest indexes; each is stored as cancelled."""
    if job.never_started:
        reach(state, job, job.spec.count - 1)
    wanted = sorted(index for index, task in job.live.items() if not task.cancelled)
    cancel_each(state, job, [job.live[index] for index in wanted[copies:]])


def _grow(state: State, job: Job, more: int) -> None:
    """Brings copies back that were stopped, the lowest indexes first, then adds new ones."""
    if not job.waiting:
        job.waits_since = state.at  # nobody let it starve
    stopped = [index for index in range(job.cursor) if index not in job.live][:more]
    for index in reversed(stopped):
        bring_back(state, job, index, "cancelled", tell=False)
    state.totals.tasks_submitted += more
    fresh = more - len(stopped)
    if fresh:
        spec = msgspec.structs.replace(job.spec, count=job.spec.count + fresh)
        state.respecify(job, spec)
        for worker in state.workers.values():
            worker.known_jobs.discard(job.id)  # its template says how many tasks there are
