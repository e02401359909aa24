"""A manager's shell around the production core, on simulated time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from kestrelctl.core import effects as fx
from kestrelctl.core.events import (
    Bounced,
    Disconnected,
    Drain,
    Event,
    Heard,
    Joined,
    Leaving,
    Lost,
    Reconnected,
    Reported,
    Returned,
    Tick,
)
from kestrelctl.core.model.config import Config
from kestrelctl.core.pool import Pool
from kestrelctl.protocol import work
from kestrelctl.protocol.handout import run_messages
from kestrelctl.simulate.audit import Audit
from kestrelctl.simulate.clock import Clock
from kestrelctl.simulate.network import BOUNCED, UNAVAILABLE, Server
from kestrelctl.simulate.process import Process
from kestrelctl.simulate.store import Store

#: A burst of events is followed by one pass of the scheduler after this long at most.
BURST_SECONDS = 0.003


class Manager(Process):
    """Feeds a `Pool` and does what it asks, as `kestrelctl.core.effects` says.

    Args:
        check: verify the pool's invariants after every event.
        answered: called with each answer to a user's request.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server: Server,
        store: Store,
        audit: Audit,
        config: Config,
        *,
        check: bool,
        answered: Callable[[fx.Answer], None],
    ) -> None:
        super().__init__(Server.MANAGER, clock, random, server)
        self.store = store
        self.audit = audit
        self.config = config
        self.check = check
        self.answered = answered
        self.pool: Pool | None = None
        self._burst = False
        self._tick_at: float | None = None
        self._overdue = 0
        self._events = 0

    @property
    def reachable(self) -> bool:
        """Whether users get through to it."""
        return self.alive and not self.stopped and self.link is not None and not self.cut_off

    # -- life --------------------------------------------------------------------------------------

    def on_start(self) -> None:
        self.pool = Pool(self.store.tables.open(), self.config)
        self._burst = False
        self._tick_at = None
        self._overdue = 0
        if self.check:
            self.pool.check()

    def on_killed(self) -> None:
        self.store.crash()
        self.pool = None

    def on_connected(self) -> None:
        self.handle(Reconnected(at=self.clock.now))

    def on_disconnected(self) -> None:
        self.handle(Disconnected(at=self.clock.now))

    # -- events ------------------------------------------------------------------------------------

    def on_message(self, message: Any) -> None:
        assert self.pool is not None
        worker, said = message
        now = self.clock.now
        self._events += 1
        cause = f"{worker}/{self._events}"
        event: Event
        match said:
            case work.Report(results=results):
                event = Reported(at=now, id=cause, worker=worker, results=results)
            case work.Heartbeat():
                event = Heard(at=now, id=cause, worker=worker)
            case work.Hello():
                event = Joined(
                    at=now,
                    id=cause,
                    worker=worker,
                    incarnation=said.incarnation,
                    greeting=said.greeting,
                    ad=said.ad,
                    holds=said.holds,
                )
            case work.Returned(numbers=numbers):
                event = Returned(at=now, id=cause, worker=worker, numbers=numbers)
            case work.Leaving():
                event = Leaving(at=now, id=cause, worker=worker)
            case _ if said == BOUNCED:
                event = Bounced(at=now, id=cause, worker=worker)
            case _:
                assert said == UNAVAILABLE
                event = Lost(at=now, id=cause, worker=worker, cause=said)
        self.handle(event)

    def handle(self, event: Event) -> None:
        """Gives an event to the pool and does what follows from it."""
        assert self.pool is not None
        self.clock.tell("pool", type(event).__name__, *_essence(event))
        self._do(self.pool.handle(event))
        if self.check:
            self.audit.check_pool(self.pool)
        if not self._burst:
            self._burst = True
            self.arrange(self.random.random() * BURST_SECONDS, self._schedule)

    def _schedule(self) -> None:
        assert self.pool is not None
        self._burst = False
        now = self.clock.now
        self._do(self.pool.schedule(now))
        if self.check:
            self.audit.check_pool(self.pool)
            self.audit.check_schedule(self.pool, now)
        wake_at = self.pool.wake_at(now)
        if wake_at is not None and (self._tick_at is None or wake_at < self._tick_at):
            self._overdue = self._overdue + 1 if wake_at <= now else 0
            self.audit.expect(self._overdue < 3, "wake_at asks for what is past, again and again")
            self._tick_at = wake_at
            self.arrange(max(0.0, wake_at - now), self._tick, wake_at)

    def _tick(self, planned: float) -> None:
        if planned == self._tick_at:
            self._tick_at = None
            self.handle(Tick(at=self.clock.now))

    # -- effects -----------------------------------------------------------------------------------

    def _do(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Persist):
                self.store.write(effect.records)
            elif effect.after_commit:
                self.store.when_durable(partial(self.enter, self.life, self._do_one, effect))
            else:
                self._do_one(effect)

    def _do_one(self, effect: fx.Effect) -> None:
        match effect:
            case fx.Run():
                self.clock.tell("pool", "Run", effect.worker, effect.spans)
                assert self.pool is not None
                for message in run_messages(effect, self.pool.state.jobs, []):
                    self._say(effect.worker, message)
            case fx.Acknowledge(worker=worker, numbers=numbers):
                self.audit.acknowledged(numbers)
                self._say(worker, work.Ack(numbers=numbers))
            case fx.Kill(worker=worker, numbers=numbers):
                self.clock.tell("pool", "Kill", worker, numbers)
                self._say(worker, work.Kill(numbers=numbers))
            case fx.Recall(worker=worker, numbers=numbers):
                self.clock.tell("pool", "Recall", worker, numbers)
                self._say(worker, work.Recall(numbers=numbers))
            case fx.Welcome():
                self.clock.tell("pool", "Welcome", effect.worker, "kill", effect.kill)
                self._say(
                    effect.worker,
                    work.Welcome(
                        incarnation=effect.incarnation,
                        greeting=effect.greeting,
                        heartbeat_seconds=effect.heartbeat_seconds,
                        kill=effect.kill,
                    ),
                )
            case fx.SetHeartbeat(worker=worker, heartbeat_seconds=heartbeat_seconds):
                self._say(worker, work.SetHeartbeat(heartbeat_seconds=heartbeat_seconds))
            case fx.AskWho(worker=worker):
                self._say(worker, work.Who())
            case fx.Feed(event=event):
                self.handle(event)
            case fx.Answer():
                self.clock.tell("pool", "Answer", effect.request, effect.job_id, effect.error or "")
                self.answered(effect)
            case fx.JobEnded(job_id=job_id):
                self.clock.tell("pool", "JobEnded", job_id)
                self.audit.job_ended(job_id)
            case fx.Note(text=text):
                self.clock.tell("pool", "Note", text)
            case _:
                raise AssertionError(f"nobody knows how to do {effect}")

    def _say(self, worker: str, message: work.Message) -> None:
        self.send((worker, message))


def _essence(event: Event) -> tuple[Any, ...]:
    """What the story tells of an event."""
    match event:
        case Reported(worker=worker, results=results):
            return (worker, [(r.number, r.job_id, r.index, r.outcome) for r in results])
        case Joined(worker=worker, incarnation=incarnation, holds=holds):
            return (worker, incarnation, holds)
        case Returned(worker=worker, numbers=numbers):
            return (worker, numbers)
        case Lost(worker=worker, cause=cause):
            return (worker, cause)
        case Heard() | Leaving() | Drain() | Bounced():
            return (event.worker,)
        case _:
            return tuple(
                getattr(event, name) for name in ("job_id", "request") if hasattr(event, name)
            )
