"""Hands waiting tasks to workers: filter, fit, order, assign. Once per burst of events."""

from __future__ import annotations

import heapq
from math import ceil

from kestrelctl.core.assets import times_fitting
from kestrelctl.core.effects import Persist, Run
from kestrelctl.core.job import Job, Phase
from kestrelctl.core.matching import Shape
from kestrelctl.core.records import Progress
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker

#: Templates a worker may hold before it is told which jobs have ended.
KNOWN_JOBS = 16


def schedule(state: State, now: float) -> None:
    """Assigns as many waiting tasks as workers can take, in one message per worker."""
    release_delayed(state, now)
    if not state.queue or not state.connected:
        return
    sent: dict[Worker, list[tuple[int, int, int, int]]] = {}
    touched: dict[Job, None] = {}
    members = {shape: _members(state, shape) for shape in state.queue.shapes()}
    progress = True
    while progress and state.queue:
        progress = False
        for cls in state.classes.values():
            if not cls.hungry:
                continue
            shapes = [s for s in members if cls.answer(s)[0] is None]
            for worker in list(cls.hungry.values()):
                if not state.queue:
                    break
                if _feed(state, worker, shapes, members, now, sent, touched):
                    progress = True
    for worker, spans in sent.items():
        state.emit(_run(state, worker, spans))
    if touched:
        state.totals.last_dispatch_at = now
        progress_records = [Progress(job.id, job.cursor) for job in touched]
        state.emit(Persist(cause=state.cause, records=list(progress_records)))


def release_delayed(state: State, now: float) -> None:
    """Requeues failed tasks whose back-off is over."""
    while state.delayed and state.delayed[0][0] <= now:
        _, job_id, index = heapq.heappop(state.delayed)
        job = state.jobs.get(job_id)
        task = job.live.get(index) if job else None
        if job and task and task.phase is Phase.DELAYED:
            job.requeue(task)
            state.refresh(job)


def room(worker: Worker, job: Job, now_slots: int, members: int, state: State, now: float) -> int:
    """How many more tasks of the job the worker should get.

    Those that run at once, and, for short tasks, enough behind them to bridge `ahead_seconds`: a
    worker then never waits for the network. Topped up only when half of that is gone, so that
    messages carry several tasks. A worker that reported nothing for a while is stuck in a long one:
    nothing is put behind that.
    """
    behind = worker.behind
    free = 0 if behind else times_fitting(job.shape.request, worker.free)
    config = state.config
    mean = job.mean_seconds
    if mean is None or mean >= config.short_seconds:
        return free
    if worker.held and worker.reported_at + config.stuck_seconds < now:
        return free
    side_by_side = min(now_slots, free + worker.running_of.get(job, 0))
    if not side_by_side:
        return 0
    per_slot = config.ahead_per_slot
    if mean * per_slot > config.ahead_seconds:
        per_slot_wanted = config.ahead_seconds / mean
        ahead = ceil(per_slot_wanted * side_by_side)
    else:
        ahead = per_slot * side_by_side
    # Not more than a worker's share of what is left, so that the last tasks are spread evenly; but
    # a quarter of the time to be bridged is not worth more messages.
    ahead = min(ahead, max(job.waiting // members, ahead // 4))
    if not free and behind > ahead // 2:
        return 0
    return max(0, free + ahead - behind)


def _members(state: State, shape: Shape) -> int:
    """How many online workers could run tasks of the shape."""
    return sum(cls.members for cls in state.classes.values() if cls.answer(shape)[0] is None)


def _feed(
    state: State,
    worker: Worker,
    shapes: list[Shape],
    members: dict[Shape, int],
    now: float,
    sent: dict[Worker, list[tuple[int, int, int, int]]],
    touched: dict[Job, None],
) -> bool:
    """Gives one worker tasks of the first job that it has room for."""
    best: Job | None = None
    best_room = 0
    for shape in shapes:
        job = state.queue.head(shape)
        if job is None or (best is not None and job.key > best.key):
            continue
        found = room(worker, job, worker.cls.answer(shape)[1], members[shape], state, now)
        if found:
            best, best_room = job, found
    if best is None:
        worker.park()
        return False
    if not worker.held:
        worker.reported_at = now
    # In rounds of shares, so that no worker is filled before the others have anything.
    share = max(1, best.waiting // (2 * members[best.shape]))
    cursor = best.cursor
    tasks = best.take(min(best_room, share, best.takeable()))
    fresh = best.cursor - cursor
    if fresh:
        state.totals.waits.observe(now - best.waits_since, fresh)
    number = state.next_number
    spans = sent.setdefault(worker, [])
    start, start_index, length = number, tasks[0].index, 0
    for task in tasks:
        if task.index != start_index + length:
            spans.append((start, best.id, start_index, length))
            start, start_index, length = number, task.index, 0
        task.phase = Phase.RUNNING
        task.sent_at = now
        worker.hold(number, task)
        number += 1
        length += 1
    spans.append((start, best.id, start_index, length))
    state.next_number = number
    best.running += len(tasks)
    state.totals.tasks_sent += len(tasks)
    touched[best] = None
    state.queue.update(best)
    return True


def _run(state: State, worker: Worker, spans: list[tuple[int, int, int, int]]) -> Run:
    known = worker.known_jobs
    new_jobs = [
        job_id for job_id in dict.fromkeys(span[1] for span in spans) if job_id not in known
    ]
    known.update(new_jobs)
    ended: list[int] = []
    if len(known) > KNOWN_JOBS:
        ended = [job_id for job_id in known if job_id not in state.jobs]
        known.difference_update(ended)
    return Run(
        cause=state.cause, worker=worker.jid, spans=spans, new_jobs=new_jobs, ended_jobs=ended
    )
