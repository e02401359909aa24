"""The store fails, and is well again: what cannot be kept is not begun and not taken in."""

from __future__ import annotations

from kestrelctl.core.events import StoreFailing, StoreWell
from kestrelctl.core.handlers.presence import ask
from kestrelctl.core.state import State


def on_store_failing(state: State, event: StoreFailing) -> None:
    """Hands nothing out and takes no results in from now on; what runs goes on."""
    state.store_error = event.why


def on_store_well(state: State, event: StoreWell) -> None:
    """Asks the workers whose results were left where they are; a welcome has them reported again.

    Until a worker has said what it holds, it is sent nothing: that would cross its hello.
    """
    state.store_error = ""
    unread, state.unread = state.unread, {}
    for jid in unread:
        worker = state.workers.get(jid)
        if worker is not None and worker.synced:
            worker.synced = False
            state.touch(worker)
            ask(state, jid)
