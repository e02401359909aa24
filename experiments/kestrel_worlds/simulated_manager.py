"""Puts the production manager together on simulated time, watches it, and ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, cast

from kestrel_worlds.audit import Audit
from kestrel_worlds.network import Server
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrelctl.core.effects import Effect, TasksEnded
from kestrelctl.core.events import (
    DropSetting,
    Event,
    Heard,
    Joined,
    PutSetting,
    Reported,
    Returned,
    Tick,
)
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import GroupRecord, PolicyRecord, Snapshot, TokenRecord
from kestrelctl.core.model.share_change import GroupChange
from kestrelctl.core.pacing.backoff import pause_of_manager_seconds
from kestrelctl.core.pool import Pool
from kestrelctl.errors import NotAllowed
from kestrelctl.manager.access import Access
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.commits import GroupCommit
from kestrelctl.manager.listener import ManagerListener
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.other_pools import NO_OTHER_POOLS, OtherPools
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.requests.pool import Usage
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers, directions, requests, workers
from kestrelctl.protocol.workers import Join, ToJoiner
from kestrelctl.store.port import Store


def admin_of(domain: str) -> str:
    """Returns the account of the admin who may drain and resume workers of a pool."""
    return f"root@users.{domain}"


def _options(domain: str) -> ManagerOptions:
    return ManagerOptions(
        domain=domain,
        secret_file=Path("secret"),
        data_dir=Path("data"),
        admins=(admin_of(domain),),
    )


class SimulatedManager(SimulatedProcess):
    """The pool's manager.

    Args:
        check: verify the pool's invariants after every event that had an effect; what is broken
            without a trace is seen at the next one.

    Attributes:
        pool: the core of the living process; None if there is none.
        pool_name: its name in the story.
        commits: writes the store of the living process; None if there is none.
        scheduled: called when the pool has handed out work.
        lease_ran_out: called when the pool has just given a silent worker up.
    """

    def __init__(
        self,
        clock: SimulationClock,
        random: Random,
        server: Server,
        store: SimulatedStore,
        audit: Audit,
        config: Config,
        *,
        check: bool,
    ) -> None:
        super().__init__("manager", server.domain, clock, random, server, audit)
        self.store = store
        self.pool_name = "pool"
        self.pool: WatchedPool | None = None
        self.commits: GroupCommit | None = None
        self.scheduled: Callable[[Pool], None] = lambda pool: None
        self.lease_ran_out: Callable[[Pool], None] = lambda pool: None
        self._config = config
        self._check = check
        self._told_to_stop: asyncio.Event

    async def main(self) -> None:
        """Runs a manager, as `manager.daemon.serve` does."""
        self._told_to_stop = asyncio.Event()
        pool = WatchedPool(self, self.store.open(), self._config, check=self._check)
        # Nobody in a world asks for what only a `Store` has; a request that did would fail.
        service = Service(pool, cast(Store, self.store), self.address, self.loop)
        self.commits = service.commits
        dispatcher = RequestDispatcher(
            service, NobodyJoins(), lambda: Usage(cpu_seconds=0.0, rss_bytes=0)
        )
        others = self.open_others(service, dispatcher)
        access = Access(_options(self.address))
        listener = ManagerListener(service, dispatcher, access, self.address, others)
        self.open_environments(service, dispatcher, listener)
        service.session = listener.session = self.connection(listener)
        service.listen(TasksEnded, self._tasks_ended)
        service.broken.add_done_callback(self._broken)
        self.pool = pool
        service.session.start()
        self.begin_others()
        await self._told_to_stop.wait()
        await self.close_others()
        await service.close()
        await service.session.stop()

    def open_others(self, service: Service, dispatcher: RequestDispatcher) -> OtherPools:
        """Opens what deals with other pools: nothing, in a world with one."""
        return NO_OTHER_POOLS

    def open_environments(
        self, service: Service, dispatcher: RequestDispatcher, listener: ManagerListener
    ) -> None:
        """Opens what starts environments: nothing, in most worlds."""

    def begin_others(self) -> None:
        """Begins to deal with other pools, as the session with the server begins."""

    def on_event(self, pool: Pool, event: Event) -> None:
        """Is called when the pool is about to hear of an event."""

    def on_refused(self, worker: str, message: workers.Refused) -> None:
        """Is called when the pool refuses a worker, which is a problem here."""
        self.audit.expect(False, f"the pool refuses {worker}: {message}")

    async def close_others(self) -> None:
        """Closes what deals with other pools: the process is about to end in order."""

    def _tasks_ended(self, ended: TasksEnded) -> None:
        self.audit.tasks_ended(ended.records)

    def _broken(self, why: asyncio.Future[Any]) -> None:
        self.audit.expect(False, f"the manager gives up: {why.result()!r}")

    def terminate(self) -> None:
        """Ends it, as by SIGTERM: what was decided becomes durable, then the process ends."""
        if self.pool is None:  # there is no handler yet
            self.kill()
        else:
            self._tell("is told to stop")
            self.loop.call_soon(self._told_to_stop.set)

    def on_ended(self) -> None:
        self.store.crash()
        self.pool = self.commits = None

    def is_worker(self, address: str) -> bool:
        """Whether that address is of one of the pool's workers."""
        return f"@workers.{self.address}" in address

    def pause_seconds(self, failures: int, chance: float) -> float:
        return pause_of_manager_seconds(failures, chance)

    def said(self, payload: str, to: str) -> None:
        if self.is_worker(to):
            message = directions.to_worker.decode(payload)
            self.clock.tell(self.pool_name, "says", to, payload)
            if isinstance(message, workers.Ack):
                self.audit.acknowledged(message.numbers)
            elif isinstance(message, workers.Run) and message.ack:
                self.audit.acknowledged(message.ack)
            elif isinstance(message, (workers.Kill, workers.Welcome)):
                kill = message.numbers if isinstance(message, workers.Kill) else message.kill
                self.audit.told_to_kill(kill)
            if isinstance(message, workers.Refused):
                self.on_refused(to, message)
            return
        answer = directions.answers.decode(payload)
        self.clock.tell(self.pool_name, "answers", to, payload)
        if isinstance(answer, answers.Submitted):
            self.audit.answered_submission(answer.job_id, repeated=answer.repeated)
        elif isinstance(answer, answers.Ended):
            self.audit.job_ended(answer.job.job_id)
        elif isinstance(answer, answers.Failed):
            self.audit.expect(
                answer.message != "the manager failed at this request", f"request {answer.id} fails"
            )


class WatchedPool(Pool):
    """The core, with its story told and its invariants verified."""

    def __init__(
        self, manager: SimulatedManager, snapshot: Snapshot, config: Config, *, check: bool
    ) -> None:
        super().__init__(snapshot, config)
        self._manager = manager
        self._clock = manager.clock
        self._audit = manager.audit
        self._check = check
        self._leases_expired = 0
        self._wake_at: float | None = None
        self._ticked = False
        self._overdue = 0  # ticks in a row after which the next was due at once
        self._audit.manager_started(self)
        if check:
            self._audit.check_pool(self)

    def handle(self, event: Event) -> list[Effect]:
        self._clock.tell(self._manager.pool_name, _word(event), *_essence(event))
        self._woken()
        self._ticked = self._ticked or isinstance(event, Tick)
        self._audit.expect(event.at >= self.state.at, "the pool is told of what is past")
        self._manager.on_event(self, event)
        effects = super().handle(event)
        self._audit.decided(effects)
        if self.state.totals.leases_expired != self._leases_expired:
            self._leases_expired = self.state.totals.leases_expired
            self._manager.lease_ran_out(self)
        if self._check and (effects or not isinstance(event, (Heard, Tick))):
            self._audit.check_pool(self)
            self._audit.check_bounds(self)
            self._audit.check_outlines(self)
        return effects

    def schedule(self, now: float) -> list[Effect]:
        effects = super().schedule(now)
        self._manager.scheduled(self)
        self._audit.decided(effects)
        if self._check:
            if effects:
                self._audit.check_pool(self)
                self._audit.check_bounds(self)
                self._audit.check_outlines(self)
            self._audit.check_schedule(self, now)
        self._audit.check_shares(self, now)
        at = self._wake_at = self.wake_at(now)
        if at is None or at > now:
            self._overdue = 0
        elif self._ticked:  # or else the tick that is due has yet to come
            self._overdue += 1
        self._ticked = False
        self._audit.expect(self._overdue < 3, "wake_at asks for what is past, again and again")
        return effects

    def _woken(self) -> None:
        """Checks that the shell wakes the pool at the moment for which it asked."""
        at, self._wake_at = self._wake_at, None
        if at is not None and self._clock.now > max(at, self._manager.disturbed_at) + LATE_SECONDS:
            self._audit.expect(False, f"the pool is woken {self._clock.now - at:.3f} s late")


#: How late the pool may be woken: the shell's shortest pause, and a turn.
LATE_SECONDS = 0.02


class NobodyJoins:
    """The enrollment of a world whose machines have accounts (`requests.dispatch.Enrollment`)."""

    async def enroll(self, caller: Caller, request: requests.EnrollWorker) -> None:
        raise NotAllowed("nobody joins")

    async def revoke(self, caller: Caller, request: requests.RevokeWorkers) -> None:
        raise NotAllowed("nobody leaves")

    def revoked_by(self, worker: str) -> str:
        return ""

    def check(self, worker: str) -> None:
        pass

    def join(self, sender: str, message: Join, reply: Callable[[ToJoiner], None]) -> None:
        pass

    def on_online(self) -> None:
        pass


#: What stories call it that a setting is put and dropped, by its class.
_SETTING_WORDS: dict[type, tuple[str, str]] = {
    PolicyRecord: ("PutPolicy", "DropPolicy"),
    TokenRecord: ("PutToken", "DropToken"),
    GroupChange: ("SetGroup", ""),
    GroupRecord: ("", "DropGroup"),
    FlockRule: ("ChangeFlock", "ChangeFlock"),
}


def _word(event: Event) -> str:
    """Returns what the story calls an event: its class, but settings have a word for each kind."""
    match event:
        case PutSetting(setting=setting):
            return _SETTING_WORDS[type(setting)][0]
        case DropSetting(kind=kind):
            return _SETTING_WORDS[kind][1]
        case _:
            return type(event).__name__


def _essence(event: Event) -> tuple[Any, ...]:
    """Returns what the story tells of an event."""
    match event:
        case Reported(worker=worker, results=results):
            return (worker, [(r.number, r.job_id, r.index, r.outcome) for r in results])
        case Joined(worker=worker, incarnation=incarnation, holds=holds):
            return (worker, incarnation, holds)
        case Returned(worker=worker, numbers=numbers):
            return (worker, numbers)
        case _:
            return tuple(
                getattr(event, name)
                for name in ("worker", "cause", "job_id", "request")
                if hasattr(event, name)
            )
