"""Workers come, go, fall silent, and come back."""

from __future__ import annotations

from kestrelctl.core.adoption import adopt
from kestrelctl.core.backoff import LONGEST_SECONDS
from kestrelctl.core.effects import AskWho, Persist, SetBeat, TakeBack, Welcome
from kestrelctl.core.events import (
    Bounced,
    Disconnected,
    Drain,
    Heard,
    Joined,
    Leaving,
    Lost,
    Reconnected,
    Resume,
    Revoked,
)
from kestrelctl.core.job import Phase
from kestrelctl.core.losses import let_go, put_back
from kestrelctl.core.records import WorkerGone, WorkerRecord
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker

#: How far a worker's interval may be off what the pool's size asks for before it is told.
BEAT_TOLERANCE = 1.5
#: Pause between two looks at the leases.
LEASE_ROUND_SECONDS = 0.5
#: A longer pause than this means that the manager slept, and heard nobody meanwhile.
SLEPT_SECONDS = 2.0


def on_joined(state: State, event: Joined) -> None:
    """Takes a worker in and squares what it holds with what the pool thinks it holds."""
    worker = state.worker(event.worker)
    reborn = worker is not None and worker.incarnation not in ("", event.incarnation)
    if worker is not None and reborn and worker.online:
        on_lost(state, Lost(at=event.at, id=event.id, worker=event.worker, cause="restarted"))
    if worker is None or state.class_for(event.ad) is not worker.cls:
        worker = _replace(state, worker, event)
    state.asked.discard(worker.jid)
    _set_online(state, worker)
    worker.ad = event.ad
    if worker.incarnation != event.incarnation:
        worker.incarnation = event.incarnation
        worker.leaving = False
    worker.joined_at = worker.reported_at = event.at
    if event.said_at is not None:
        worker.skew.greet(event.said_at, event.at)
    worker.synced = True
    worker.taking_back = False
    worker.known_jobs.clear()
    kill = adopt(state, worker, event, reborn=reborn)
    worker.promote()
    worker.beat_seconds = state.config.beat_seconds(state.online)
    renew(state, worker, event.at)
    state.emit(
        Welcome(
            cause=state.cause,
            worker=worker.jid,
            incarnation=event.incarnation,
            greeting=event.greeting,
            beat_seconds=worker.beat_seconds,
            kill=kill,
        )
    )
    if worker.may_take(event.at):
        worker.wake()
    end_limbo_if_all_spoke(state, event.at)


def _replace(state: State, old: Worker | None, event: Joined) -> Worker:
    """A worker object for a new worker, or for one whose capacity or tags have changed."""
    worker = Worker(event.worker, state.class_for(event.ad), event.ad, event.at)
    draining = False
    if old is not None:
        draining = worker.draining = old.draining
        worker.tasks_done, worker.tasks_failed = old.tasks_done, old.tasks_failed
        worker.incarnation, worker.leaving = old.incarnation, old.leaving
        _set_offline(state, old, event.at)
        for number, task in list(old.held.items()):
            old.release(number)
            worker.hold(number, task)
    state.workers[worker.jid] = worker
    state.emit(Persist(cause=state.cause, records=[WorkerRecord(worker.jid, draining)]))
    return worker


def on_heard(state: State, event: Heard) -> None:
    """Renews a lease; asks a worker that the pool does not (or no longer) know who it is."""
    worker = state.worker(event.worker)
    if worker is None or not worker.online or not worker.synced:
        ask(state, event.worker)
        return
    wanted = state.config.beat_seconds(state.online)
    ratio = wanted / worker.beat_seconds
    if ratio > BEAT_TOLERANCE or ratio < 1 / BEAT_TOLERANCE:
        worker.beat_seconds = wanted
        state.emit(SetBeat(cause=state.cause, worker=worker.jid, beat_seconds=wanted))
    renew(state, worker, event.at)


def on_lost(state: State, event: Lost) -> None:
    """Requeues what a worker had, and counts a loss for what it had begun."""
    worker = state.worker(event.worker)
    state.asked.discard(event.worker)
    if worker is None or (not worker.online and not worker.held):
        end_limbo_if_all_spoke(state, event.at)
        return
    if worker.online:
        state.note("info", f"worker {worker.jid} is gone ({event.cause}), {len(worker.held)} held")
    _set_offline(state, worker, event.at)
    worker.away_until = event.at + state.config.away_seconds
    let_go(state, worker, event.at, cause=event.cause, keep_waiting=True)
    end_limbo_if_all_spoke(state, event.at)


def on_bounced(state: State, event: Bounced) -> None:
    """Nobody is where a worker was: it is lost, unless it may only be on its way back.

    After an outage of the server the manager is often back before its workers are. Those that have
    yet to say what they hold have until their lease runs out.
    """
    worker = state.worker(event.worker)
    if worker is not None and worker.online and worker.synced:
        on_lost(state, Lost(at=event.at, id=event.id, worker=event.worker, cause="bounce"))


def on_drain(state: State, event: Drain) -> None:
    """Stops sending tasks to a worker; what it runs goes on, what waits there is taken back."""
    worker = state.worker(event.worker)
    if worker is None:
        return
    _set_draining(state, worker, True)
    worker.hide()
    waiting = [number for number, task in worker.held.items() if not task.charged]
    if waiting and worker.online:
        state.emit(TakeBack(cause=state.cause, worker=worker.jid, numbers=waiting))


def on_leaving(state: State, event: Leaving) -> None:
    """A worker that is about to stop gets nothing new; its next process does."""
    worker = state.worker(event.worker)
    if worker is not None:
        worker.leaving = True
        worker.hide()


def on_resume(state: State, event: Resume) -> None:
    """Ends a worker's drain or quarantine."""
    worker = state.worker(event.worker)
    if worker is None:
        return
    _set_draining(state, worker, False)
    worker.quarantined_until = 0.0
    worker.streak = 0
    if worker.may_take(event.at):
        worker.wake()


def on_revoked(state: State, event: Revoked) -> None:
    """Requeues all that a worker had and forgets it: it cannot come back, so nothing waits."""
    worker = state.worker(event.worker)
    state.asked.discard(event.worker)
    if worker is not None:
        state.note("info", f"worker {worker.jid} was revoked by {event.by}")
        _set_offline(state, worker, event.at)
        let_go(state, worker, event.at, cause="revoked", keep_waiting=False)
        _forget(state, worker)
    end_limbo_if_all_spoke(state, event.at)


def _forget(state: State, worker: Worker) -> None:
    del state.workers[worker.jid]
    state.emit(Persist(cause=state.cause, records=[WorkerGone(worker.jid)]))


def _set_draining(state: State, worker: Worker, draining: bool) -> None:
    if worker.draining != draining:
        worker.draining = draining
        state.emit(Persist(cause=state.cause, records=[WorkerRecord(worker.jid, draining)]))


def on_disconnected(state: State, event: Disconnected) -> None:
    """Without its own connection the manager hears nobody, so nobody's silence counts."""
    state.connected = False
    state.limbo_until = None


def on_reconnected(state: State, event: Reconnected) -> None:
    """Asks every known worker what it holds, and gives each a lease to come back and answer in."""
    state.connected = True
    state.limbo_until = event.at + state.config.limbo_seconds
    state.leases_checked_at = event.at
    state.asked.clear()
    for worker in state.workers.values():
        if not worker.online and worker.incarnation:
            # It was lost, but may have come back and said so to nobody.
            state.emit(AskWho(cause=state.cause, worker=worker.jid))
            continue
        if not worker.online:
            worker.offline_since = event.at
        worker.synced = False
        worker.hide()
        renew(state, worker, event.at + LONGEST_SECONDS)
        ask(state, worker.jid)
    end_limbo_if_all_spoke(state, event.at)


def ask(state: State, jid: str) -> None:
    """Has a worker say what it holds."""
    state.asked.add(jid)
    state.emit(AskWho(cause=state.cause, worker=jid))


def renew(state: State, worker: Worker, now: float) -> None:
    beat = worker.beat_seconds or state.config.beat_seconds(state.online)
    worker.lease_until = now + state.config.lease_seconds(beat)


def check_leases(state: State, now: float) -> None:
    """Declares silent workers lost, drops those long gone, ends what had a time limit."""
    pause = now - state.leases_checked_at
    if not state.connected or now < state.leases_checked_at + LEASE_ROUND_SECONDS:
        return
    state.leases_checked_at = now
    if pause > SLEPT_SECONDS:
        for worker in state.workers.values():
            worker.lease_until += pause
    for worker in list(state.workers.values()):
        if worker.online:
            if worker.lease_until < now:
                state.totals.leases_expired += 1
                state.note("warning", f"worker {worker.jid} fell silent; its lease ran out")
                on_lost(state, Lost(at=now, worker=worker.jid, cause="lease"))
            elif worker.quarantined_until and worker.quarantined_until <= now:
                worker.quarantined_until = 0.0
                worker.streak = 0
                if worker.may_take(now):
                    worker.wake()
        elif worker.held and worker.away_until <= now:
            let_go(state, worker, now, cause="away", keep_waiting=False)
        elif not worker.held and worker.offline_since + state.config.forget_worker_seconds <= now:
            _forget(state, worker)
    if state.limbo_until is not None and state.limbo_until <= now:
        end_limbo(state, now)


def end_limbo_if_all_spoke(state: State, now: float) -> None:
    if state.limbo_until is not None and state.connected and not state.asked:
        end_limbo(state, now)


def end_limbo(state: State, now: float) -> None:
    """Requeues what was dispatched before a restart and no worker has claimed."""
    state.limbo_until = None
    for job in list(state.jobs.values()):
        for task in reversed(list(job.live.values())):
            if task.phase is Phase.LIMBO:
                put_back(state, task, "")
        state.settle(job, now)


def _set_online(state: State, worker: Worker) -> None:
    if not worker.online:
        state.totals.worker_joins += 1
        worker.online = True
        worker.cls.members += 1
        state.online += 1


def _set_offline(state: State, worker: Worker, now: float) -> None:
    worker.hide()
    worker.synced = False
    if worker.online:
        worker.online = False
        worker.offline_since = now
        worker.cls.members -= 1
        state.online -= 1
