"""Finds out, after a restart, who has what was dispatched before it.

Also reacts to a store that fails, and is well again: what cannot be kept is not begun and not taken
in.
"""

from __future__ import annotations

from kestrelctl.core.attempts.endings import put_back
from kestrelctl.core.effects import MembersHeard
from kestrelctl.core.events import StoreFailing, StoreWell
from kestrelctl.core.handlers.presence import ask
from kestrelctl.core.jobs.job import Standing
from kestrelctl.core.state import State


def on_store_failing(state: State, event: StoreFailing) -> None:
    """Hands nothing out and takes no results in from now on; what runs goes on."""
    state.store_error = event.why


def on_store_well(state: State, event: StoreWell) -> None:
    """Asks the workers whose results were left there; a welcome makes them report these again.

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


def end_reconciliation_if_all_spoke(state: State) -> None:
    """Ends the wait for what was dispatched before if no worker is left that may still have it."""
    if state.reconcile_until is not None and state.connected and not state.asked:
        end_reconciliation(state)


def end_reconciliation(state: State) -> None:
    """Makes tasks ready that were dispatched before a restart and that no worker has claimed.

    Tokens that no worker has claimed are free; quotas, and bounds of jobs, count what workers have
    claimed.
    """
    state.reconcile_until = None
    workers = state.workers.values()
    there = frozenset(worker.jid for worker in workers if worker.online)
    away = {worker.jid: worker.ad for worker in workers if not worker.online}
    state.emit(MembersHeard(at=state.at, there=there, away=away))
    if not state.tokens.settled:
        state.touch_tokens(state.tokens.names)
        state.tokens.settled = True
    state.eased.update(dict.fromkeys(state.sharers.settle()))
    for job in list(state.jobs.values()):
        job.recovering = False
        for task in reversed(list(job.live.values())):
            if task.standing is Standing.UNHEARD:
                put_back(state, task, "")
        state.touch_job(job)
