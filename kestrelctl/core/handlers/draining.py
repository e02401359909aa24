"""Drains workers: nothing new is sent there, and what can go on elsewhere does."""

from __future__ import annotations

from kestrelctl.core.events import Drain, Leaving, Resume
from kestrelctl.core.handlers.checkpoints import take_checkpoints
from kestrelctl.core.handlers.health import release
from kestrelctl.core.handlers.presence import remember, spoke
from kestrelctl.core.handlers.services import move_copies
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.state import State


def on_drain(state: State, event: Drain) -> None:
    """Stops sending tasks to a worker; what it runs goes on, what waits there is recalled."""
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    state.note("info", f"worker {worker.jid} was drained by {event.by}")
    _set_draining(state, worker, True, event.by)
    state.touch(worker)
    waiting = worker.queued_numbers()
    if waiting and worker.online:
        state.recall(worker, waiting)
    _have_moved(state, worker, f"it was drained by {event.by}")


def on_resume(state: State, event: Resume) -> None:
    """Ends a worker's drain or quarantine."""
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    state.note("info", f"worker {worker.jid} was resumed by {event.cause}")
    _set_draining(state, worker, False, event.cause)
    worker.quarantines = 0
    release(state, worker, f"resumed by {event.cause}")


def on_leaving(state: State, event: Leaving) -> None:
    """Sends nothing new to a worker that is about to stop; its next process gets tasks again."""
    spoke(state, event.worker, event.at)
    worker = state.workers.get(event.worker)
    if worker is not None:
        worker.leaving = True
        state.touch(worker)
        _have_moved(state, worker, "it is about to stop")


def _have_moved(state: State, worker: Worker, why: str) -> None:
    """Has what goes on elsewhere stopped at a worker that shall be empty soon: copies of services,
    and tasks that leave checkpoints. All else runs there to its end.
    """
    move_copies(state, worker, why)
    take_checkpoints(state, worker, why)


def _set_draining(state: State, worker: Worker, draining: bool, by: str) -> None:
    if worker.draining != draining:
        worker.draining = draining
        state.tell_member(worker, "drain" if draining else "drain-end", f"by {by}")
        remember(state, worker)
