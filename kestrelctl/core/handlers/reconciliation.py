"""After a restart: who has what was dispatched before it."""

from __future__ import annotations

from kestrelctl.core.attempts.endings import put_back
from kestrelctl.core.effects import MembersHeard
from kestrelctl.core.jobs.job import Standing
from kestrelctl.core.state import State


def end_reconciliation_if_all_spoke(state: State) -> None:
    """Ends the wait for what was dispatched before if no worker is left that may still have it."""
    if state.reconcile_until is not None and state.connected and not state.asked:
        end_reconciliation(state)


def end_reconciliation(state: State) -> None:
    """Makes ready what was dispatched before a restart and no worker has claimed.

    Tokens that no worker has claimed are free, and quotas count what workers have claimed.
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
        for task in reversed(list(job.live.values())):
            if task.standing is Standing.UNHEARD:
                put_back(state, task, "")
        state.touch_job(job)
