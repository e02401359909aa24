"""How long a worker may be silent, and what happens when it was silent too long."""

from __future__ import annotations

from kestrelctl.core.attempts.endings import put_back
from kestrelctl.core.attempts.losses import let_go
from kestrelctl.core.effects import AskWho
from kestrelctl.core.events import Tick
from kestrelctl.core.jobs.job import Standing
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.records import WorkerGone
from kestrelctl.core.state import State

#: Pause between two looks at the leases.
LEASE_ROUND_SECONDS = 0.5
#: A longer pause than this means that the manager slept, and heard nobody meanwhile.
SLEPT_SECONDS = 2.0


def on_tick(state: State, event: Tick) -> None:
    """Declares silent workers lost, drops those long gone, ends what had a time limit."""
    now = event.at
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
    if state.reconcile_until is not None and state.reconcile_until <= now:
        end_reconciliation(state)


def _check_lease(state: State, worker: Worker, now: float) -> None:
    if worker.lease_until < now:
        state.totals.leases_expired += 1
        state.note("warning", f"worker {worker.jid} fell silent; its lease ran out")
        lose_worker(state, worker, now, "lease")
    elif worker.quarantined_until and worker.quarantined_until <= now:
        worker.quarantined_until = 0.0
        worker.streak = 0
        state.touch(worker)


def lose_worker(state: State, worker: Worker, now: float, cause: str) -> None:
    """Requeues what a worker had, and counts a loss for what it had begun.

    Args:
        cause: one of `totals.LOSS_CAUSES`.
    """
    state.asked.discard(worker.jid)
    if not worker.online:
        return
    state.note("info", f"worker {worker.jid} is gone ({cause}), {len(worker.held)} held")
    set_offline(state, worker, now)
    worker.away_until = now + state.config.away_seconds
    let_go(state, worker, cause=cause, keep_waiting=True)


def spoke(state: State, jid: str, now: float) -> Worker | None:
    """Does what every message of a worker calls for, whatever it says.

    It renews the worker's lease. One that has yet to say what it holds is asked to instead, once.

    Returns:
        The worker; None if the pool does not (or no longer) know what it holds.
    """
    worker = state.workers.get(jid)
    if worker is not None and worker.synced:
        renew(state, worker, now)
        return worker
    if jid not in state.asked:
        ask(state, jid)
    return None


def renew(state: State, worker: Worker, now: float) -> None:
    """Lets a worker be silent for a lease from now on. No lease becomes shorter by that."""
    interval = worker.heartbeat_seconds or state.config.heartbeat_seconds(state.online)
    worker.lease_until = max(worker.lease_until, now + state.config.lease_seconds(interval))


def ask(state: State, jid: str) -> None:
    """Has a worker say what it holds."""
    state.asked.add(jid)
    state.emit(AskWho(worker=jid))


def set_online(state: State, worker: Worker) -> None:
    """A worker is there."""
    if not worker.online:
        state.totals.worker_joins += 1
        worker.online = True
        state.supply.of(worker).members += 1
        state.online += 1


def set_offline(state: State, worker: Worker, now: float) -> None:
    """A worker is not there any more."""
    worker.synced = False
    state.touch(worker)
    if worker.online:
        worker.online = False
        worker.offline_since = now
        state.supply.of(worker).members -= 1
        state.online -= 1


def forget(state: State, worker: Worker) -> None:
    """A worker that has nothing is dropped from the list."""
    state.supply.hide(worker)
    del state.workers[worker.jid]
    state.record(WorkerGone(worker.jid))


def end_reconciliation_if_all_spoke(state: State) -> None:
    """Nobody is left who could still say that he has a task that was dispatched before."""
    if state.reconcile_until is not None and state.connected and not state.asked:
        end_reconciliation(state)


def end_reconciliation(state: State) -> None:
    """Makes ready what was dispatched before a restart and no worker has claimed."""
    state.reconcile_until = None
    for job in list(state.jobs.values()):
        for task in reversed(list(job.live.values())):
            if task.standing is Standing.UNHEARD:
                put_back(state, task, "")
        state.touch_job(job)
