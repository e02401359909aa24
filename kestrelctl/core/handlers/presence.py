"""The presence of workers: they come, say something, are lost, and are forgotten."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from kestrelctl.core.attempts.losses import let_go
from kestrelctl.core.attempts.suspects import lost_elsewhere, suspect_at
from kestrelctl.core.effects import AskWho
from kestrelctl.core.handlers.health import note_lapse
from kestrelctl.core.handlers.offers import ask_for_more
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.records import WorkerGone, WorkerRecord
from kestrelctl.core.state import State

#: The most addresses that are remembered as asked though they never say hello. One account can have
#: any number of them, one after another.
MOST_STRANGERS = 10_000
#: Each cause of a loss in words.
_WHY_GONE = {
    "unavailable": "its session has ended",
    "lease": "it fell silent",
    "bounce": "a message to it came back",
    "restarted": "another process of it has started",
}


def lose_worker(
    state: State, worker: Worker, now: float, cause: str, goes_on_with: Collection[int] = ()
) -> None:
    """Requeues what a worker had, and counts a loss for what it had begun.

    Args:
        cause: one of `totals.LOSS_CAUSES`.
        goes_on_with: attempts that its next process has, or reports.
    """
    state.asked.discard(worker.jid)
    if not worker.online:
        return
    state.note("info", f"worker {worker.jid} is gone ({cause}), {len(worker.held)} held")
    beside = suspect_at(state, worker) not in ("", worker.jid)
    may_be_to_blame = worker.cls.distance_seconds or not (beside or lost_elsewhere(worker))
    if worker.running and not worker.leaving and may_be_to_blame:
        note_lapse(state, worker, now)
    set_offline(state, worker, now)
    state.tell_member(worker, "leave" if worker.leaving else "failed", _WHY_GONE.get(cause, cause))
    worker.away_until = now + state.config.away_seconds
    let_go(state, worker, cause=cause, keep_waiting=True, goes_on_with=goes_on_with)
    ask_for_more(state, worker.account)


def spoke(state: State, jid: str, now: float) -> Worker | None:
    """Does what every message of a worker calls for, whatever it says.

    It renews the worker's lease. A worker that has yet to say what it holds is asked for that
    instead, once.

    Returns:
        The worker; None if the pool does not (or no longer) know what it holds.
    """
    worker = state.workers.get(jid)
    if worker is not None and worker.synced:
        worker.heard_at = now
        renew(state, worker, now)
        return worker
    if worker is None and len(state.asked) >= len(state.workers) + MOST_STRANGERS:
        state.emit(AskWho(worker=jid))
    elif jid not in state.asked:
        ask(state, jid)
    return None


def renew(state: State, worker: Worker, now: float) -> None:
    """Lets a worker be silent for a lease from now on. No lease becomes shorter by that."""
    interval = worker.heartbeat_seconds or state.config.heartbeat_seconds(state.online)
    worker.lease_until = max(worker.lease_until, now + state.config.lease_seconds(interval))


def ask(state: State, jid: str) -> None:
    """Asks a worker what it holds."""
    state.asked.add(jid)
    state.emit(AskWho(worker=jid))


def set_online(state: State, worker: Worker) -> None:
    """Counts a worker among those that are there."""
    if not worker.online:
        state.totals.worker_joins += 1
        worker.online = True
        state.tell_member(worker, "join")
        state.supply.count(worker.cls, 1)
        state.sessions.setdefault(worker.account, {})[worker.jid] = worker
        state.online += 1


def set_offline(state: State, worker: Worker, now: float) -> None:
    """Counts a worker among those that are gone: it gets nothing until it says hello."""
    worker.synced = False
    state.touch(worker)
    if worker.online:
        worker.online = False
        worker.offline_since = now
        state.supply.count(worker.cls, -1)
        sessions = state.sessions[worker.account]
        del sessions[worker.jid]
        if not sessions:
            del state.sessions[worker.account]
        state.online -= 1


def forget(state: State, worker: Worker) -> None:
    """Drops a worker that holds nothing, here and in the store."""
    state.supply.hide(worker)
    del state.workers[worker.jid]
    state.record(WorkerGone(worker.jid))


def remember(state: State, worker: Worker) -> None:
    """Has it written down what a worker is and whether it is drained."""
    ad = worker.ad if worker.cls.ad_known else None
    if ad is not None and ad.properties:
        ad = replace(ad, properties={})  # Their values are told again, and would be old.
    state.record(WorkerRecord(worker.jid, worker.draining, ad))
