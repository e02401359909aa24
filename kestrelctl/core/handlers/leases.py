"""Limits how long a worker may be silent, and acts when it was silent for too long."""

from __future__ import annotations

from kestrelctl.core.attempts.estimates import note_time
from kestrelctl.core.attempts.losses import let_go
from kestrelctl.core.events import ClockSet, Tick
from kestrelctl.core.features.table import tell_time
from kestrelctl.core.handlers.health import release
from kestrelctl.core.handlers.presence import forget, lose_worker
from kestrelctl.core.handlers.recovery import end_reconciliation
from kestrelctl.core.handlers.reporting import record_usage
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.state import State

#: Pause between two looks at the leases.
LEASE_ROUND_SECONDS = 0.5
#: A longer pause than this means that the manager slept, and heard nobody meanwhile.
SLEPT_SECONDS = 2.0


def on_tick(state: State, event: Tick) -> None:
    """Declares silent workers lost, drops those long gone, ends what had a time limit."""
    now = event.at
    tell_time(state, now)
    record_usage(state, now)
    pause = now - state.leases_checked_at
    if not state.connected or pause < LEASE_ROUND_SECONDS:
        return
    state.leases_checked_at = now
    if pause > SLEPT_SECONDS:
        for worker in state.workers.values():
            worker.lease_until += pause
    for worker in list(state.workers.values()):
        if worker.online:
            _check_lease(state, worker, now)
        elif worker.held and worker.away_until <= now:
            let_go(state, worker, cause="away", keep_waiting=False)
        elif not worker.held and worker.offline_since + state.config.forget_worker_seconds <= now:
            forget(state, worker)
    if len(state.workers) - state.online > state.config.most_offline_sessions:
        _drop_first_gone(state)
    if state.reconcile_until is not None and state.reconcile_until <= now:
        end_reconciliation(state)


def on_clock_set(state: State, event: ClockSet) -> None:
    """Makes moments that users have named follow the machine's clock. Nothing else does."""
    state.alarms.wall_ahead_seconds = event.ahead_seconds
    tell_time(state, event.at)


def _drop_first_gone(state: State) -> None:
    """Forgets the surplus of each account's offline sessions, those first that went first.

    An account that comes anew all the time would fill memory, store and lists. A session about
    which an admin or the pool has decided something stays.
    """
    gone: dict[str, list[Worker]] = {}
    for worker in state.workers.values():
        if not (worker.online or worker.held or worker.draining or worker.quarantined_until):
            gone.setdefault(worker.account, []).append(worker)
    for workers in gone.values():
        workers.sort(key=lambda worker: worker.offline_since)
        for worker in workers[: -state.config.most_offline_sessions]:
            forget(state, worker)


def _check_lease(state: State, worker: Worker, now: float) -> None:
    if worker.lease_until < now:
        state.totals.leases_expired += 1
        state.note("warning", f"worker {worker.jid} fell silent; its lease ran out")
        lose_worker(state, worker, now, "lease")
    elif worker.quarantined_until and worker.quarantined_until <= now:
        release(state, worker)
    elif worker.outlines:
        note_time(state, worker, now)
