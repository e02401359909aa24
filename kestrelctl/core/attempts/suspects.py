"""Suspects tasks of ending their workers, as those that use up all memory or kill what they can.

A task comes under suspicion after it was lost so often (`SUSPECT_LOSSES`). From then on little runs
beside it, and its losses are held against nobody else. Tasks of jobs that span workers are neither
charged more nor kept waiting, and no task is at a neighbour: what that lends is no machine.
"""

from __future__ import annotations

from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.job import SUSPECT_LOSSES, Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.worker.assets import known
from kestrelctl.core.model.worker.claim import Claim, limits_beyond
from kestrelctl.core.model.worker.unit_claim import claim_of
from kestrelctl.core.state import State

#: A task that has just come under suspicion is charged one of so many parts of a machine.
SUSPECT_PARTS = 4
#: How long a suspected task waits for another in the same process before it is looked at again.
SUSPECT_PAUSE_SECONDS = 1.0


def note(worker: Worker, task: Task) -> None:
    """Remembers that a worker was given a task, if that is suspected."""
    if task.is_suspect:
        worker.silence.process.suspects.append(task)


def first_suspect(tasks: list[Task]) -> Task | None:
    """The first of these tasks that may end its worker."""
    return next((task for task in tasks if task.is_suspect), None)


def must_wait(state: State, worker: Worker, suspect: Task) -> bool:
    """Whether a suspected task waits for another that runs at another worker of the same process.

    As at one worker, two that have just come under suspicion may run side by side, and others run
    alone: a task that was suspected by chance ends well then.
    """
    return any(
        max(other.losses, suspect.losses) > SUSPECT_LOSSES
        for other in suspects_in(state, worker)
        if other.attempt is not None and other.attempt.worker != worker.jid
    )


def widened(claim: Claim, worker: Worker, suspect: Task) -> Claim:
    """Widens the claim of a suspected task: little runs beside it then that it could take along.

    The task is charged a quarter of the worker's machine at first, then all of it: a task that was
    suspected by chance runs alone then, and ends well. This is not done at a neighbour: a part of
    all that it lends is no machine of it.
    """
    part = SUSPECT_PARTS if suspect.losses == SUSPECT_LOSSES else 1
    capacity, indexed = known(worker.cls.capacity), worker.cls.indexed
    # It is told of the units that it is charged: those are what it asked for.
    wide = {
        name: n if name in indexed else max(n, capacity.get(name, 0) // part)
        for name, n in claim.amounts.items()
    }
    found = claim_of(wide, indexed)
    found.limits = limits_beyond(claim.limits, wide)
    return found


def suspect_at(state: State, worker: Worker) -> str:
    """Finds the worker, in the process of a lost one, at which a suspected task runs, or ran when
    the first of these workers was lost; empty if there is none.

    A task that ends its process ends all workers in it.
    """
    process = worker.silence.process
    if not process.suspect_at:
        if any(task.is_suspect for task in _running(worker)):
            process.suspect_at = worker.jid
        else:
            attempts = (task.attempt for task in suspects_in(state, worker))
            process.suspect_at = next((each.worker for each in attempts if each is not None), "")
    return process.suspect_at


def suspects_in(state: State, worker: Worker) -> list[Task]:
    """The suspected tasks that run in a worker's process."""
    process = worker.silence.process
    process.suspects = [
        task
        for task in process.suspects
        if task.attempt is not None
        and state.workers[task.attempt.worker].silence.process is process
    ]
    return process.suspects


def lost_elsewhere(worker: Worker) -> bool:
    """Whether a worker runs a task that was lost at another before: the task may be to blame.

    No task is to blame for the loss of a neighbour.
    """
    return any(
        task.lost_at not in ("", worker.jid) and not is_neighbour(task.lost_at)
        for task in _running(worker)
    )


def _running(worker: Worker) -> list[Task]:
    return [
        task
        for task in worker.held.values()
        if task.attempt is not None and task.attempt.phase is Phase.RUNNING
    ]
