"""What a worker that says hello still holds, squared with what the pool believes.

The earlier surviving attempt of a task wins: work that was begun is kept, a repetition is stopped.
"""

from __future__ import annotations

from kestrelctl.core.effects import Kill
from kestrelctl.core.events import Joined
from kestrelctl.core.job import Job, Phase, Task
from kestrelctl.core.losses import find_again, lose, put_back
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker


def adopt(state: State, worker: Worker, event: Joined, *, reborn: bool) -> list[int]:
    """Makes the worker's attempts those of the event.

    Args:
        reborn: the worker's process was restarted, so what it no longer holds died with it.

    Returns:
        The numbers of attempts that the worker shall kill: their tasks are over, or run elsewhere.
    """
    kill: list[int] = []
    jobs: dict[Job, None] = {}
    said = {number for number, _, _ in event.holds}
    for number, task in reversed(list(worker.held.items())):
        if number not in said:
            # It died with the process, or came too late: before the welcome nothing counts.
            begun = task.charged
            worker.release(number)
            task.job.running -= 1
            if reborn and begun:
                lose(state, task, worker.jid, "restarted")
            else:
                put_back(state, task, worker.jid)
            jobs[task.job] = None
    for number, job_id, index in event.holds:
        job = state.jobs.get(job_id)
        if job is None or not 0 <= index < job.spec.count:
            kill.append(number)
            continue
        if index >= job.cursor and state.may_reach(job, index, number):
            state.reach(job, index)
        found = job.live.get(index)
        if found is None or not _claim(state, worker, number, found, event.at):
            kill.append(number)
        jobs[job] = None
    for job in jobs:
        if job.cancelling:
            kill.extend(number for number, task in worker.held.items() if task.job is job)
        state.settle(job, event.at)
    return kill


def _claim(state: State, worker: Worker, number: int, task: Task, now: float) -> bool:
    """Gives the task to this attempt unless an earlier one has it, or its result was counted."""
    if number <= task.concluded:
        return False
    if task.phase is Phase.RUNNING:
        if task.number == number and task.worker is worker:
            return True
        if task.number < number:
            return False
        other = task.worker
        if other is not None:
            other_number = task.number
            other.release(other_number)
            other.promote()
            if other.online:
                state.emit(Kill(cause=state.cause, worker=other.jid, numbers=[other_number]))
            if other.may_take(now):
                other.wake()
    else:
        state.detach(task)
        task.job.running += 1
        task.phase = Phase.RUNNING
    worker.hold(number, task)
    task.sent_at = 0.0
    find_again(state, task, worker.jid)
    return True
