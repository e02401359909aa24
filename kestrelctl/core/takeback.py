"""Takes tasks back that wait behind others while workers idle."""

from __future__ import annotations

from kestrelctl.core.effects import TakeBack
from kestrelctl.core.events import Returned
from kestrelctl.core.job import Job
from kestrelctl.core.losses import put_back
from kestrelctl.core.membership import renew
from kestrelctl.core.state import State

#: Pause between two rounds of looking.
ROUND_SECONDS = 0.1


def take_back(state: State, now: float) -> None:
    """Asks workers that are stuck for half of what waits there, as far as others idle that can run
    it.

    Only workers that reported nothing for `stuck_seconds` are asked: what waits is worth
    `ahead_seconds` of work, so at any other worker it is about to run.
    """
    if now < state.next_take_back_at or not state.connected or not state.jobs:
        return
    state.next_take_back_at = now + ROUND_SECONDS
    idlers = [
        worker
        for cls in state.classes.values()
        for crowd in (cls.hungry, cls.parked)
        for worker in crowd.values()
        if not worker.held
    ]
    if not idlers:
        return
    idle = len(idlers)
    idle_classes = {worker.cls for worker in idlers}
    stuck = [
        worker
        for worker in state.workers.values()
        if worker.behind
        and worker.synced
        and not worker.taking_back
        and worker.reported_at + state.config.stuck_seconds < now
    ]
    stuck.sort(key=lambda worker: worker.behind, reverse=True)
    for worker in stuck:
        if idle <= 0:
            return
        waiting = [
            number
            for number, task in worker.held.items()
            if not task.charged
            and any(cls.answer(task.job.shape)[0] is None for cls in idle_classes)
        ]
        if not waiting:
            continue
        wanted = waiting[len(waiting) // 2 :]
        worker.taking_back = True
        idle -= len(wanted)
        state.emit(TakeBack(cause=state.cause, worker=worker.jid, numbers=wanted))


def on_returned(state: State, event: Returned) -> None:
    """Requeues what a worker gave back."""
    worker = state.worker(event.worker)
    if worker is None:
        return
    worker.taking_back = False
    jobs: dict[Job, None] = {}
    for number in reversed(event.numbers):
        task = worker.release(number)
        if task is None:
            continue
        task.job.running -= 1
        put_back(state, task, worker.jid)
        jobs[task.job] = None
        state.totals.tasks_taken_back += 1
    worker.promote()
    if worker.online:
        renew(state, worker, event.at)
    for job in jobs:
        state.settle(job, event.at)
    if worker.may_take(event.at):
        worker.wake()
