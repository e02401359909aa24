"""Carries a plan out: the only place where tasks are given to workers."""

from __future__ import annotations

from kestrelctl.core.attempts.book import begin
from kestrelctl.core.effects import Run, Span
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.claim import Claim
from kestrelctl.core.model.records import Progress
from kestrelctl.core.scheduling.plan import Assignment, Plan
from kestrelctl.core.state import State

#: Templates a worker may hold before it is told which jobs have ended.
KNOWN_JOBS = 16


def hand_out(state: State, plan: Plan, now: float) -> None:
    """Gives tasks to workers as a plan for this very state says, in one message for each worker."""
    for worker in plan.sated:
        state.supply.park(worker)
    if not plan.assignments:
        return
    moved: dict[Job, None] = {}
    for worker, assignments in plan.assignments.items():
        if not worker.held:
            worker.reported_at = now
        state.emit(_give(state, worker, assignments, now))
        moved.update((assignment.job, None) for assignment in assignments)
    state.totals.last_dispatch_at = now
    for job in moved:
        state.touch_job(job)
        state.record(Progress(job.id, job.cursor))


def _give(state: State, worker: Worker, assignments: list[Assignment], now: float) -> Run:
    """Begins the attempts of one worker."""
    spans: list[Span] = []
    items: list[str] = []
    items_of: set[int] = set()
    claims: list[Claim] = []
    for assignment in assignments:
        job, claim = assignment.job, assignment.claim
        cursor = job.cursor
        tasks = job.take(assignment.tasks)
        fresh = job.cursor - cursor
        if fresh:
            state.totals.waits.observe(now - job.waits_since, fresh)
        if claim not in claims:
            claims.append(claim)
        begin(worker, tasks, state.next_number, claim, now)
        place = claims.index(claim)
        if fresh == len(tasks):
            spans.append((state.next_number, job.id, cursor, fresh, place))
        else:
            spans.extend(_spans(job, tasks, state.next_number, place))
        if job.spec.items is not None:
            items_of.add(job.id)
            items.extend(job.spec.items[task.index] for task in tasks)
        state.next_number += len(tasks)
        state.totals.tasks_sent += len(tasks)
    templates = [
        job.template
        for job in dict.fromkeys(assignment.job for assignment in assignments)
        if job.id not in worker.known_jobs
    ]
    worker.known_jobs.update(template.job_id for template in templates)
    forget: list[int] = []
    if len(worker.known_jobs) > KNOWN_JOBS:
        forget = [job_id for job_id in worker.known_jobs if job_id not in state.jobs]
        worker.known_jobs.difference_update(forget)
    return Run(
        worker=worker.jid,
        spans=spans,
        claims=[claim.amounts for claim in claims],
        templates=templates,
        items=items,
        items_of=frozenset(items_of),
        forget=forget,
    )


def _spans(job: Job, tasks: list[Task], number: int, claim: int) -> list[Span]:
    """Tasks with consecutive indexes travel together."""
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
