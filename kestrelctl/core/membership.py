"""Workers come, go, fall silent, and come back."""

from __future__ import annotations

from kestrelctl.core.adoption import adopt
from kestrelctl.core.effects import AskWho, Persist, SetBeat, TakeBack, Welcome
from kestrelctl.core.events import (
    Disconnected,
    Drain,
    Heard,
    Joined,
    Leaving,
    Lost,
    Reconnected,
    Resume,
)
from kestrelctl.core.job import Job, Phase, Task
from kestrelctl.core.model import OnWorkerLost, TaskState
from kestrelctl.core.records import WorkerGone, WorkerRecord
from kestrelctl.core.state import State
from kestrelctl.core.worker import Worker

#: How far a worker's interval may be off what the pool's size asks for before it is told.
BEAT_TOLERANCE = 1.5


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
    worker.incarnation = event.incarnation
    worker.joined_at = event.at
    worker.synced = True
    worker.leaving = False
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
            beat_seconds=worker.beat_seconds,
            kill=kill,
        )
    )
    if worker.may_take(event.at):
        worker.wake()
    end_limbo_if_all_spoke(state)


def _replace(state: State, old: Worker | None, event: Joined) -> Worker:
    """A worker object for a new worker, or for one whose capacity or tags have changed."""
    worker = Worker(event.worker, state.class_for(event.ad), event.ad, event.at)
    draining = False
    if old is not None:
        draining = worker.draining = old.draining
        worker.tasks_done, worker.tasks_failed = old.tasks_done, old.tasks_failed
        worker.incarnation = old.incarnation
        _set_offline(state, old)
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
        state.emit(AskWho(cause=state.cause, worker=event.worker))
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
        end_limbo_if_all_spoke(state)
        return
    if worker.online:
        state.note("info", f"worker {worker.jid} is gone ({event.cause}), {len(worker.held)} held")
    _set_offline(state, worker)
    worker.away_until = event.at + state.config.away_seconds
    let_go(state, worker, event.at, keep_waiting=True)
    end_limbo_if_all_spoke(state)


def let_go(state: State, worker: Worker, now: float, *, keep_waiting: bool) -> None:
    """Takes attempts away from a worker that went offline; those told to wait may stay."""
    jobs: dict[Job, None] = {}
    for number, task in reversed(list(worker.held.items())):
        if keep_waiting and task.job.spec.on_worker_lost is OnWorkerLost.WAIT:
            continue
        begun = task.charged
        worker.release(number)
        task.job.running -= 1
        jobs[task.job] = None
        if begun:
            lose(state, task, worker.jid)
        else:
            _back(state, task, worker.jid)
    worker.promote()
    for job in jobs:
        state.settle(job, now)


def lose(state: State, task: Task, jid: str) -> None:
    """Counts a loss for a task whose attempt went with its worker, and requeues it or gives it up."""
    state.totals.attempts_lost += 1
    task.losses += 1
    if task.losses >= task.job.spec.max_losses and not task.job.cancelling:
        state.finish(task, TaskState.LOST, jid, None)
    else:
        if not task.job.cancelling:
            state.remember(task, TaskState.WAITING, jid, None)
        _back(state, task, jid)


def _back(state: State, task: Task, jid: str) -> None:
    if task.job.cancelling:
        state.finish(task, TaskState.CANCELLED, jid, None)
    else:
        task.job.requeue(task)


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
    """A worker that is about to stop gets nothing new; its next hello ends that."""
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


def _set_draining(state: State, worker: Worker, draining: bool) -> None:
    if worker.draining != draining:
        worker.draining = draining
        state.emit(Persist(cause=state.cause, records=[WorkerRecord(worker.jid, draining)]))


def on_disconnected(state: State, event: Disconnected) -> None:
    """Without its own connection the manager hears nobody, so nobody's silence counts."""
    state.connected = False


def on_reconnected(state: State, event: Reconnected) -> None:
    """Asks every known worker what it holds, and gives each a fresh lease to answer in."""
    state.connected = True
    if state.limbo_until is None:
        state.limbo_until = event.at + state.config.limbo_seconds
    for worker in state.workers.values():
        if not worker.online and worker.incarnation:
            continue
        worker.synced = False
        worker.hide()
        renew(state, worker, event.at)
        state.asked.add(worker.jid)
        state.emit(AskWho(cause=state.cause, worker=worker.jid))
    end_limbo_if_all_spoke(state)


def renew(state: State, worker: Worker, now: float) -> None:
    beat = worker.beat_seconds or state.config.beat_seconds(state.online)
    worker.lease_until = now + state.config.lease_seconds(beat)


def check_leases(state: State, now: float) -> None:
    """Declares silent workers lost, drops long gone ones, ends quarantines and limbo that are over."""
    if not state.connected or now < state.next_lease_check_at:
        return
    state.next_lease_check_at = now + 0.5
    for worker in list(state.workers.values()):
        if worker.online:
            if worker.lease_until < now:
                state.totals.leases_expired += 1
                state.note("warning", f"worker {worker.jid} fell silent; its lease ran out")
                on_lost(state, Lost(at=now, worker=worker.jid, cause="silent"))
            elif worker.quarantined_until and worker.quarantined_until <= now:
                worker.quarantined_until = 0.0
                worker.streak = 0
                if worker.may_take(now):
                    worker.wake()
        elif worker.held and worker.away_until <= now:
            let_go(state, worker, now, keep_waiting=False)
        elif not worker.held and worker.joined_at + state.config.forget_worker_seconds <= now:
            del state.workers[worker.jid]
            state.emit(Persist(cause=state.cause, records=[WorkerGone(worker.jid)]))
    if state.limbo_until is not None and state.limbo_until <= now:
        end_limbo(state)


def end_limbo_if_all_spoke(state: State) -> None:
    if state.limbo_until is not None and state.connected and not state.asked:
        end_limbo(state)


def end_limbo(state: State) -> None:
    """Requeues what was dispatched before a restart and no worker has claimed."""
    state.limbo_until = None
    for job in list(state.jobs.values()):
        for task in reversed(list(job.live.values())):
            if task.phase is Phase.LIMBO:
                job.requeue(task)
        state.refresh(job)


def _set_online(state: State, worker: Worker) -> None:
    if not worker.online:
        worker.online = True
        worker.cls.members += 1
        state.online += 1


def _set_offline(state: State, worker: Worker) -> None:
    worker.hide()
    worker.synced = False
    if worker.online:
        worker.online = False
        worker.cls.members -= 1
        state.online -= 1
