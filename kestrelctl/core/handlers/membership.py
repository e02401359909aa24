"""Workers join, speak, are lost, and come back."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from kestrelctl.core.attempts.adoption import adopt, end_unnamed
from kestrelctl.core.attempts.losses import let_go
from kestrelctl.core.attempts.pairs import settle_restored
from kestrelctl.core.attempts.table import note_stages, resize
from kestrelctl.core.effects import AskWho, Feed, SetHeartbeat, Welcome
from kestrelctl.core.events import (
    Bounced,
    Disconnected,
    Heard,
    Joined,
    Lost,
    PropertiesRead,
    Reconnected,
    Resized,
    Revoked,
    Wanted,
    WorkerStored,
)
from kestrelctl.core.features.table import tell_reconnected
from kestrelctl.core.handlers.checkpoints import take_checkpoints
from kestrelctl.core.handlers.health import take_over
from kestrelctl.core.handlers.offers import admitted, ask_for_more
from kestrelctl.core.handlers.presence import (
    ask,
    forget,
    lose_worker,
    remember,
    renew,
    set_offline,
    set_online,
    spoke,
)
from kestrelctl.core.handlers.recovery import end_reconciliation_if_all_spoke
from kestrelctl.core.handlers.services import copies_to_move
from kestrelctl.core.members.silence import Process
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.member_change import what_changed
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.matching_ads import properties_ad
from kestrelctl.core.pacing.backoff import RETURN_SECONDS
from kestrelctl.core.settings.pool_assets import note_clash
from kestrelctl.core.state import State

#: How far a worker's interval may be off what the pool's size asks for before it is told.
HEARTBEAT_TOLERANCE = 1.5

#: A worker that says what it has.
Said = TypeVar("Said", Joined, Resized)


def on_joined(state: State, event: Joined) -> None:
    """Takes a worker in and reconciles what it holds with what the pool thinks it holds."""
    worker = state.workers.get(event.worker)
    reborn = worker is not None and worker.incarnation not in ("", event.incarnation)
    if worker is not None:
        if reborn:
            lose_worker(
                state, worker, event.at, "restarted", {number for number, *_ in event.holds}
            )
        end_unnamed(state, worker, event, reborn=reborn)
        if worker.incarnation == event.incarnation:
            event = _with_properties_of(worker, event)
    event = _with_ad_of_account(state, event)
    cls = state.class_of(admitted(state, event, worker), event.worker)
    note_clash(state, event.worker, worker.ad if worker is not None else None, event.ad)
    if worker is None:
        worker = state.workers[event.worker] = Worker(event.worker, cls, event.ad, event.at)
        set_online(state, worker)
        take_over(state, worker, event.at)
        remember(state, worker)
        # A manager that does not know it would not wait for it, and give its tasks to another.
        known = WorkerStored(at=event.at, cause=event.cause, worker=worker.jid)
        state.emit(Feed(event=known, urgent=True))
    else:
        _change(state, worker, cls, event.ad)
        set_online(state, worker)
    state.asked.discard(worker.jid)
    if worker.incarnation != event.incarnation:
        worker.incarnation = event.incarnation
        worker.silence.process = state.processes.setdefault(event.incarnation, Process())
        worker.leaving = False
    worker.joined_at = worker.heard_at = event.at
    worker.silence.begin(event.at)
    if event.said_at is not None:
        worker.skew.greet(event.said_at, event.at, state.alarms.wall_ahead_seconds)
    worker.synced = True
    worker.recalls = ()
    worker.wants = event.wants
    worker.known_jobs.clear()
    kill = adopt(state, worker, event)
    note_stages(worker, event.stages)
    if worker.draining:
        kill += copies_to_move(worker, "it is drained")
    worker.heartbeat_seconds = state.config.heartbeat_seconds(state.online)
    renew(state, worker, event.at)
    state.touch(worker)
    state.emit(
        Welcome(
            worker=worker.jid,
            incarnation=event.incarnation,
            greeting=event.greeting,
            heartbeat_seconds=worker.heartbeat_seconds,
            usage_seconds=state.config.usage_seconds,
            kill=kill,
        )
    )
    take_checkpoints(state, worker, "it is drained" if worker.draining else "")
    end_reconciliation_if_all_spoke(state)


def on_worker_stored(state: State, event: WorkerStored) -> None:
    """Lets a new worker be sent work: whichever manager is next will ask it what it holds."""
    worker = state.workers.get(event.worker)
    if worker is not None:
        worker.stored = True
        state.touch(worker)


def on_resized(state: State, event: Resized) -> None:
    """Notes that a worker has more or less than before.

    What runs there goes on; if that is more than there is now, nothing new starts until enough of
    it has ended.
    """
    worker = spoke(state, event.worker, event.at)
    if worker is None:
        return  # it was asked for a hello, which says the same
    cpus = worker.cls.capacity.get("cpus", 0)
    event = _with_properties_of(worker, event)
    note_clash(state, event.worker, worker.ad, event.ad)
    _change(state, worker, state.class_of(admitted(state, event, worker), event.worker), event.ad)
    state.touch(worker)
    if worker.cls.capacity.get("cpus", 0) < cpus:
        ask_for_more(state, worker.account)


def on_properties(state: State, event: PropertiesRead) -> None:
    """Notes new values of a worker's host; the worker may be of another class with them."""
    worker = spoke(state, event.worker, event.at)
    if worker is None:
        return  # all will be told again after its hello
    worker.ad = replace(worker.ad, properties=event.properties)
    names = [name.lower() for name in properties_ad(dict.fromkeys(event.changed, 0))]
    state.supply.significance.known.update(names)
    if not state.supply.significance.asks(names):
        return
    cls = state.class_of(worker.counted_ad, worker.jid)
    if cls is not worker.cls:
        state.supply.hide(worker)
        state.supply.move(worker, cls)
        worker.cls = cls
        state.supply.note_change(cls)
        state.touch(worker)


def _with_properties_of(worker: Worker, event: Said) -> Said:
    """Adds to what a worker says of itself what it has told of its host before."""
    if not worker.ad.properties and not event.ad.properties:
        return event
    return replace(event, ad=replace(event.ad, properties=worker.ad.properties))


def _with_ad_of_account(state: State, event: Joined) -> Joined:
    """Puts the ad of another session of its account in place of an equal one: one copy is kept.

    Sessions of one process say the same of themselves, and there may be hundreds of them.
    """
    account = event.worker.partition("/")[0]
    other = next(iter(state.sessions.get(account, {}).values()), None)
    if other is None or other.ad is event.ad or other.ad != event.ad:
        return event
    return replace(event, ad=other.ad)


def _change(state: State, worker: Worker, cls: WorkerClass, ad: WorkerAd) -> None:
    """Notes what a worker offers now; its attempts stay as they are."""
    if cls is worker.cls and ad == worker.ad:
        return
    if cls is not worker.cls:
        state.supply.hide(worker)
        state.supply.move(worker, cls)
    told = "" if cls.distance_seconds else what_changed(worker.ad, ad)
    resize(worker, cls, ad)
    if told:
        state.tell_member(worker, "update", told)
    state.supply.note_change(cls)
    remember(state, worker)


def on_heard(state: State, event: Heard) -> None:
    """Notes a sign of life, and tells a worker whose interval is far off how often to give one."""
    # These are rare enough to ask again with each: the worker may have missed the question.
    state.asked.discard(event.worker)
    worker = spoke(state, event.worker, event.at)
    if worker is None:
        return
    wanted = state.config.heartbeat_seconds(state.online)
    ratio = wanted / worker.heartbeat_seconds
    if ratio > HEARTBEAT_TOLERANCE or ratio < 1 / HEARTBEAT_TOLERANCE:
        worker.heartbeat_seconds = wanted
        state.emit(SetHeartbeat(worker=worker.jid, heartbeat_seconds=wanted))
        renew(state, worker, event.at)


def on_lost(state: State, event: Lost) -> None:
    """Takes a worker for lost, because the server says that it is gone."""
    worker = state.workers.get(event.worker)
    state.asked.discard(event.worker)
    if worker is not None:
        lose_worker(state, worker, event.at, event.cause)
    end_reconciliation_if_all_spoke(state)


def on_bounced(state: State, event: Bounced) -> None:
    """Takes a worker for lost whose address has nobody, unless it may only be on its way back.

    After an outage of the server the manager is often back before its workers are. Those that have
    yet to say what they hold have until their lease runs out.
    """
    worker = state.workers.get(event.worker)
    if worker is not None and worker.online and worker.synced:
        lose_worker(state, worker, event.at, "bounce")
        end_reconciliation_if_all_spoke(state)


def on_wanted(state: State, event: Wanted) -> None:
    """Notes that a worker that pulls may be sent more than before."""
    worker = spoke(state, event.worker, event.at)
    if worker is not None and worker.wants is not None:
        worker.wants += event.attempts
        state.touch(worker)


def on_revoked(state: State, event: Revoked) -> None:
    """Requeues all that a worker had and forgets it: it cannot come back, so nothing waits."""
    worker = state.workers.get(event.worker)
    state.asked.discard(event.worker)
    if worker is not None:
        state.note("info", f"worker {worker.jid} was revoked by {event.by}")
        if worker.online:
            state.tell_member(worker, "leave", f"revoked by {event.by}")
        set_offline(state, worker, event.at)
        let_go(state, worker, cause="revoked", keep_waiting=False)
        forget(state, worker)
    end_reconciliation_if_all_spoke(state)


def on_disconnected(state: State, event: Disconnected) -> None:
    """Notes that the manager has no connection: it hears nobody, so nobody's silence counts."""
    state.connected = False
    state.reconcile_until = None


def on_reconnected(state: State, event: Reconnected) -> None:
    """Asks every known worker what it holds, and gives each a lease to come back and answer in."""
    state.connected = True
    state.began_at = min(state.began_at, event.at)
    state.reconcile_until = event.at + state.config.reconcile_seconds
    state.leases_checked_at = event.at
    state.asked.clear()
    for worker in state.workers.values():
        if not worker.online and worker.incarnation:
            # It was lost, but may have come back while nobody heard it.
            state.emit(AskWho(worker=worker.jid))
            continue
        if not worker.online:
            worker.offline_since = event.at
        worker.synced = False
        state.touch(worker)
        renew(state, worker, event.at + RETURN_SECONDS)
        ask(state, worker.jid)
    for job in state.jobs.values():
        for line in job.lines():
            line.served_at = event.at  # nothing could be handed out before: nobody let it starve
    tell_reconnected(state)
    settle_restored(state)
    end_reconciliation_if_all_spoke(state)
