"""Carries a plan out: the only place where tasks are given to workers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import msgspec

from kestrelctl.core.attempts.endings import back_off, write_passed
from kestrelctl.core.attempts.suspects import (
    SUSPECT_PAUSE_SECONDS,
    first_suspect,
    must_wait,
    note,
    widened,
)
from kestrelctl.core.attempts.table import begin
from kestrelctl.core.effects import Run, Span
from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.members.availability import startable
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.span import told_host
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.records import Progress
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.plan import Assignment, Plan
from kestrelctl.core.state import State

#: Templates a worker may hold before it is told which jobs have ended.
KNOWN_JOBS = 16


def hand_out(state: State, plan: Plan, now: float, passed_over: list[Worker] | None = None) -> bool:
    """Gives tasks to workers as a plan for this very state says, in one message for each worker.

    Args:
        passed_over: the list to which workers are added that were given nothing because all that
            they would have got was just lost there, and others can take it. Without it nobody is
            passed over.

    Returns:
        Whether some of it was not done, so that another plan would find more to do.
    """
    state.supply.park(plan.sated)
    for quota in plan.held_back:
        quota.held_back = True
    if not plan.assignments and not plan.together:
        return False
    sent, planned = state.totals.tasks_sent, 0
    moved: dict[Job, None] = {}
    for job, members in plan.together:
        _start_together(state, job, members, now)
        planned += len(members)
        moved[job] = None
    for worker, assignments in plan.assignments.items():
        if not worker.held:
            worker.silence.begin(now)
        run = _give(state, worker, assignments, now, choosy=passed_over is not None)
        if run.spans:
            state.emit(run)
        elif passed_over is not None:
            state.supply.park([worker])
            passed_over.append(worker)
        for assignment in assignments:
            planned += assignment.tasks
            assignment.job.served_at = now
            moved[assignment.job.whole] = None
    state.totals.last_dispatch_at = now
    for job in moved:
        job.served_at = now
        state.touch_job(job)
        state.record(Progress(job.id, job.cursor))
    left = state.totals.tasks_sent - sent < planned
    if left:
        # There is more room than the plan thought.
        for worker in (*plan.assignments, *plan.sated):
            if passed_over is None or worker not in passed_over:
                state.touch(worker)
    return left


def _start_together(
    state: State, job: Job, members: list[tuple[Worker, Claim]], now: float
) -> None:
    """Begins an attempt of each task of a job, one at each of these workers; each is told of all.

    A task that has lost workers before is not passed over, and not charged more than it asks for:
    either all tasks go to where they have room, or none does.
    """
    fresh = job.never_started
    tasks = sorted(job.take(len(members), "", now), key=lambda task: task.index)
    if fresh:
        state.totals.waits.observe(now - job.waits_since, fresh)
    hosts = [told_host(worker.ad.host) for worker, _ in members]
    for task, (worker, claim) in zip(tasks, members, strict=True):
        if not worker.held:
            worker.silence.begin(now)
        number = state.next_number
        begin(state, worker, [task], number, claim, now)
        note(worker, task)
        state.next_number += 1
        state.totals.tasks_sent += 1
        if worker.wants is not None:
            worker.wants -= 1
        templates, forget = _templates(state, worker, [job])
        state.emit(
            Run(
                worker=worker.jid,
                spans=[(number, job.id, task.index, 1, 0)],
                claims=[claim.amounts],
                templates=templates,
                programs_of=_long(templates, [job]),
                forget=forget,
                counts=[(number, count)] if (count := task.next_count) > 1 else [],
                limits=[(0, dict(claim.limits))] if claim.limits else [],
                hosts=hosts,
            )
        )


def _templates(
    state: State, worker: Worker, given: Iterable[Job]
) -> tuple[list[Template], list[int]]:
    """The templates that a worker needs for these jobs and does not have, and the jobs whose
    templates it need not keep.
    """
    keep_logs = state.config.keep_logs
    templates = [
        job.template(keep_logs=keep_logs) for job in given if job.id not in worker.known_jobs
    ]
    if worker.cls.distance_seconds:
        templates = [_with_owner(state, template) for template in templates]
    worker.known_jobs.update(template.job_id for template in templates)
    forget: list[int] = []
    if len(worker.known_jobs) > KNOWN_JOBS:
        forget = [job_id for job_id in worker.known_jobs if job_id not in state.jobs]
        worker.known_jobs.difference_update(forget)
    return templates, forget


def _long(templates: list[Template], given: Iterable[Job]) -> frozenset[int]:
    """The jobs whose templates lack texts of their programs."""
    return frozenset(job.id for job in given if job.is_long) if templates else frozenset()


def _with_owner(state: State, template: Template) -> Template:
    """A template that tells a neighbour whose tasks these are, also of a job without files."""
    sharer = state.jobs[template.job_id].sharer
    group = sharer.record.group
    return msgspec.structs.replace(template, owner=sharer.name, group=group)


def _give(
    state: State, worker: Worker, assignments: list[Assignment], now: float, *, choosy: bool
) -> Run:
    """Begins the attempts of one worker."""
    spans: list[Span] = []
    items_of: set[int] = set()
    counts: list[tuple[int, int]] = []
    checkpoints: list[tuple[int, MadeCheckpoint]] = []
    claims: list[Claim] = []
    given: dict[Job, None] = {}
    for assignment in assignments:
        job, claim = assignment.job, assignment.claim
        cursor = job.cursor
        shuns = choosy and job.ready and _should_shun(state, worker, assignment, now)
        # Several lines of a job were planned separately, but share the limits of the job.
        n = min(assignment.tasks, takeable(job)) if job.whole.larger else assignment.tasks
        tasks = job.take(n, worker.jid if shuns else "", now)
        if not tasks:
            continue
        fresh = job.cursor - cursor
        again = tasks[: len(tasks) - fresh]
        if job.pairing is not None:
            # The cursor may have passed over other tasks: these are sent by their own indexes.
            again, fresh = tasks, sum(task.index >= cursor for task in tasks)
            write_passed(state, job)
        suspect = first_suspect(again) if again and not worker.cls.distance_seconds else None
        if suspect is not None:
            _put_back(tasks, suspect)
            if must_wait(state, worker, suspect):
                back_off(state, suspect, now + SUSPECT_PAUSE_SECONDS)
                continue
            note(worker, suspect)
            again, tasks, fresh, claim = [suspect], [suspect], 0, widened(claim, worker, suspect)
        if fresh:
            state.totals.waits.observe(now - job.waits_since, fresh)
        if claim not in claims:
            claims.append(claim)
        begin(state, worker, tasks, state.next_number, claim, now)
        for number, task in enumerate(again, state.next_number):
            if (count := task.next_count) > 1:
                counts.append((number, count))
            if task.checkpoint is not None:
                checkpoints.append((number, _resumed(state, worker, task, number)))
        place = claims.index(claim)
        if not again:
            spans.append((state.next_number, job.id, cursor, fresh, place))
        else:
            spans.extend(_spans(job, tasks, state.next_number, place))
        if job.has_items:
            items_of.add(job.id)
        state.next_number += len(tasks)
        if worker.wants is not None:
            worker.wants -= len(tasks)
        state.totals.tasks_sent += len(tasks)
        given[job.whole] = None
        if suspect is not None:
            break
    templates, forget = _templates(state, worker, given)
    return Run(
        worker=worker.jid,
        spans=spans,
        claims=[claim.amounts for claim in claims],
        templates=templates,
        items_of=frozenset(items_of),
        programs_of=_long(templates, given),
        forget=forget,
        counts=counts,
        limits=[(place, dict(claim.limits)) for place, claim in enumerate(claims) if claim.limits],
        checkpoints=checkpoints,
    )


def _resumed(state: State, worker: Worker, task: Task, number: int) -> MadeCheckpoint:
    """Returns the checkpoint that an attempt goes on from; counts and tells that it does."""
    found = task.checkpoint
    assert found is not None
    job = task.job
    job.resumed += 1
    state.record(job.record())
    detail = f"from checkpoint {found.n}"
    state.tell(job, task.index, "resumed", number=number, worker=worker.jid, detail=detail)
    return MadeCheckpoint(found.n, found.stored)


def _should_shun(state: State, worker: Worker, assignment: Assignment, now: float) -> bool:
    """Whether some of these tasks were just lost at the worker, and others could begin one now."""
    first = islice(assignment.job.ready.values(), assignment.tasks)
    if not any(task.lost_at == worker.jid and task.shun_until > now for task in first):
        return False
    return any(
        other is not worker and startable(terms.claim, other.free, other.queued)
        for cls in state.supply.present()
        if isinstance(terms := cls.terms(assignment.job.shape), Terms)
        for crowd in (cls.hungry, cls.parked)
        for other in crowd.values()
    )


def _put_back(tasks: list[Task], suspect: Task) -> None:
    """Leaves the other tasks for later: they need not run beside the suspect."""
    for task in reversed(tasks):
        if task is not suspect:
            task.job.make_ready(task)


def _spans(job: Job, tasks: list[Task], number: int, claim: int) -> list[Span]:
    """Groups tasks with consecutive indexes, which travel together."""
    spans: list[Span] = []
    first, n = tasks[0].index, 0
    for task in tasks:
        if task.index != first + n:
            spans.append((number, job.id, first, n, claim))
            number += n
            first, n = task.index, 0
        n += 1
    spans.append((number, job.id, first, n, claim))
    return spans
