"""The part of a worker process that its sessions share: executor, spool, and the way out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

import msgspec

from kestrelctl.clock_and_session import Clock, Session
from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.counting.stored_totals import StoredTotals
from kestrelctl.core.counting.totals import RUN_BOUNDS
from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.ad import WorkerAd, bookable, unit_ids
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.worker.connection.manager_epochs import ManagerEpochs
from kestrelctl.worker.connection.session import WorkerSession
from kestrelctl.worker.connection.start_order import StartOrder
from kestrelctl.worker.run.executor import CommandSpec, Completion, Executor

log = logging.getLogger(__name__)

#: How long a drained worker waits for acknowledgements when the pool is away; results stay spooled.
UNHEARD_SECONDS = 5.0
#: A worker takes nothing new in the last part of its lifetime: this long, but at most this share.
LAST_SECONDS = 60.0
LAST_SHARE = 0.1
#: How long starts may keep the event loop from everything else.
START_SLICE_SECONDS = 0.004
#: Pause between two logins of a process with many sessions, so that the server is not flooded.
LOGIN_PAUSE_SECONDS = 0.002
#: A signal that comes this soon after the first one is the same wish: the keeper passes on what it
#: hears, and `pkill -f`, or a wrapper in a terminal, has told the worker as well.
ONE_WISH_SECONDS = 0.5

#: The names of outcomes, by their number in `Outcome`.
OUTCOMES = ("done", "failed", "killed", "unable", "goes_on")

_encode = msgspec.json.Encoder().encode
#: A result, its seal, and the account to which the seal was given.
Spooled = tuple[Result, Seal, str]
_decode = msgspec.json.Decoder(Spooled).decode


class Spool(Protocol):
    """Keeps results beyond the process until they are acknowledged."""

    degraded: str | None  #: why records are only in memory; None if all is well

    @property
    def size_bytes(self) -> int:
        """The size on disk."""
        ...

    def load(self) -> list[tuple[int, bytes]]:
        """Returns what is not acknowledged, oldest first: attempt number and payload."""
        ...

    def append(self, records: Iterable[tuple[int, bytes]]) -> None:
        """Adds records. Never raises for want of space."""

    def forget(self, numbers: Iterable[int]) -> None:
        """Forgets attempts that are acknowledged; unknown numbers are no error."""

    def close(self) -> None:
        """Lets another process have it."""


class WorkerProcess:
    """One process with one or many sessions.

    Args:
        incarnation: a word that no other process of these workers has.
        spool: holds what an earlier process could not report, and what this one cannot.
        executor: makes the executor; it is given what is to be called with each `Completion`.
        clock: dates signs of life and results.
        random: spreads over time what many workers do.
        epochs: what managers told of themselves; None to keep it in memory only.
    """

    def __init__(
        self,
        incarnation: str,
        spool: Spool,
        executor: Callable[[Callable[[Completion], None]], Executor],
        clock: Clock,
        random: Random,
        epochs: ManagerEpochs | None = None,
    ) -> None:
        self.epochs = epochs or ManagerEpochs()
        self.incarnation = incarnation
        self.clock = clock
        self.random = random
        self.sessions: list[WorkerSession] = []
        self.done = asyncio.Event()
        self.refused: str | None = None
        self.stopped = False
        self.on_draining: Callable[[], None] = lambda: None
        self.stanzas = StanzaCounts()
        self.finished = dict.fromkeys(OUTCOMES, 0)
        self.runs = Histogram(RUN_BOUNDS)
        self.stored = StoredTotals()
        self.executor = executor(self._on_completion)
        self._draining = False
        self._signalled_at: float | None = None
        self._starts: StartOrder[WorkerSession] = StartOrder()
        self._starts_planned = False
        self._session_of: dict[int, WorkerSession] = {}
        self._unspooled: list[Spooled] = []
        self._reporting: dict[WorkerSession, None] = {}
        self._flush_planned = False
        self._degraded: str | None = None
        self._loop = asyncio.get_running_loop()
        self._spool = spool
        self._left = self._left_in_spool()
        self._computed: dict[str, list[tuple[CommandSpec, HeldAttempt]]] = {}
        for command in self.executor.left():
            if command.held is not None:
                self._computed.setdefault(command.held.account, []).append((command, command.held))

    def add_session(
        self,
        pool: str,
        ad: WorkerAd,
        jid: str,
        connect: Callable[[WorkerSession], Session],
        *,
        pulls: bool = False,
    ) -> None:
        """Adds a worker. It reports what an earlier process left in the spool of its account: the
        seals belong to no other. It goes on with what that process had computed and not finished.

        Args:
            jid: its account.
            connect: makes its connection, which is not started yet.
            pulls: it is sent no more attempts than it asks for.
        """
        left = self._left.pop(jid.partition("/")[0], [])
        if left:
            log.info("%d results of an earlier run are still to be reported", len(left))
        agent = Agent(bookable(ad), left, unit_ids(ad), pulls=pulls)
        worker = WorkerSession(f"s{len(self.sessions) + 1}", pool, ad, agent, self, jid)
        worker.session = connect(worker)
        self.sessions.append(worker)
        for command, held in self._computed.pop(jid.partition("/")[0], []):
            if worker.agent.resume(held.again(self.clock.now())):
                log.info("attempt %d was computed by an earlier run and goes on", held.number)
                self._session_of[held.number] = worker
                self._start(command)
                continue
            if held.number not in worker.agent.unacknowledged:
                log.warning("attempt %d does not fit any more; it is dropped", held.number)
            self.executor.kill(held.number)

    def _left_in_spool(self) -> dict[str, list[tuple[Result, Seal]]]:
        """Reads what an earlier process left in the spool, by account.

        What cannot be read is forgotten: an earlier version wrote it, and the pool will have those
        tasks run again.
        """
        left: dict[str, list[tuple[Result, Seal]]] = {}
        for number, payload in self._spool.load():
            try:
                result, seal, account = _decode(payload)
                left.setdefault(account, []).append((result, seal))
            except (msgspec.DecodeError, UnicodeError):
                log.warning("spool: the result of attempt %d is of another version", number)
                self._spool.forget([number])
        return left

    async def run(self) -> None:
        """Connects, and works until `done` is set."""
        for account, left in self._left.items():
            log.warning("spool: %d results of %s, who is not here, are dropped", len(left), account)
            self._spool.forget([result.number for result, _ in left])
        self._left.clear()
        for account, computed in self._computed.items():
            log.warning("%d attempts of %s, who is not here, are dropped", len(computed), account)
            for command, _ in computed:
                self.executor.kill(command.number)
        self._computed.clear()
        for worker in self.sessions:
            if self.executor.most_ahead:
                worker.most_ahead = max(1, self.executor.most_ahead // len(self.sessions))
            worker.session.start()
            if len(self.sessions) > 1:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOGIN_PAUSE_SECONDS):
                        await self.done.wait()
            if self.done.is_set():
                break
        await self.done.wait()

    # -- what sessions share -----------------------------------------------------------------------

    def _on_completion(self, end: Completion) -> None:
        session_of = self._session_of.pop(end.number, None)
        if session_of is not None:
            session_of.on_completion(end)
            if self._draining:
                self.on_progress()

    def on_begun(self, number: int, at: float) -> None:
        """Is called by the executor when an attempt has started that waited there."""
        session_of = self._session_of.get(number)
        if session_of is not None:
            session_of.on_begun(number, at)

    def on_withdrawn(self, number: int) -> None:
        """Is called by the executor when it has forgotten an attempt that waited there."""
        session_of = self._session_of.pop(number, None)
        if session_of is not None:
            session_of.on_withdrawn(number)
            if self._draining:
                self.on_progress()

    def on_stage(self, number: int, name: str) -> None:
        """Is called by the executor when an attempt begins a stage."""
        session_of = self._session_of.get(number)
        if session_of is not None:
            session_of.on_stage(number, name)

    def on_said(self, number: int, data: bytes) -> None:
        """Is called when an attempt has written a frame to its channel."""
        session_of = self._session_of.get(number)
        if session_of is not None:
            session_of.channels.said(number, data)

    def wants_to_start(self, worker: WorkerSession) -> None:
        self._starts.add(worker)
        self._plan_starts()

    def _plan_starts(self) -> None:
        if not self._starts_planned:
            self._starts_planned = True
            self._loop.call_soon(self._start_slice)

    def _start_slice(self) -> None:
        """Starts attempts, one session at a time, until the slice is over."""
        self._starts_planned = False
        if self.done.is_set():
            return
        until = self.clock.now() + START_SLICE_SECONDS
        worker = self._starts.take()
        try:
            while worker is not None:
                command = worker.next_command()
                if command is not None:
                    self._session_of[command.number] = worker
                    self._start(command)
                if self.clock.now() >= until:
                    break
                worker = self._starts.take()
        finally:
            if self._starts:
                self._plan_starts()

    def _start(self, command: CommandSpec) -> None:
        """Starts a command; if it is refused, or the executor fails, the attempt ends here."""
        if command.refusal:
            reason = EndKind.CANNOT_START.text(command.refusal)
            end = Completion(command.number, reason=reason, started_at=self.clock.wall())
            self._loop.call_soon(self._on_completion, end)
            return
        try:
            self.executor.start(command)
        except Exception as error:
            what = f"attempt {command.number} could not be started"
            self._loop.call_exception_handler({"message": what, "exception": error})
            self._on_completion(
                Completion(
                    command.number,
                    reason=EndKind.NO_RESOURCES.text(repr(error)),
                    started_at=self.clock.wall(),
                )
            )

    def spool(self, result: Result, seal: Seal, account: str) -> None:
        self._unspooled.append((result, seal, account))
        self._plan_flush()

    def forget(self, numbers: list[int]) -> None:
        self._spool.forget(numbers)

    def wants_to_report(self, worker: WorkerSession) -> None:
        self._reporting[worker] = None
        self._plan_flush()

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Writes to the spool once for all that ended in this turn, then sends the reports."""
        self._flush_planned = False
        if self._unspooled:
            self._spool.append([(kept[0].number, _encode(kept)) for kept in self._unspooled])
            self._count([result for result, _, _ in self._unspooled])
            self._unspooled.clear()
            if self._spool.degraded != self._degraded:
                self._degraded = self._spool.degraded
                log.warning("spool: %s", self._degraded or "written to disk again")
        reporting, self._reporting = self._reporting, {}
        try:
            while reporting:
                worker = next(iter(reporting))
                del reporting[worker]
                worker.report()
        finally:
            for worker in reporting:  # one that fails keeps no other from reporting
                self.wants_to_report(worker)

    def status(self) -> str:
        """One line on the state of this worker."""
        online = sum(worker.session.online for worker in self.sessions)
        link = self.sessions[0].session.link
        if len(self.sessions) > 1:
            link = f"{online:,} of {len(self.sessions):,} sessions connected"
        draining = "draining; " if self._draining else ""
        running = sum(len(worker.agent.running) for worker in self.sessions)
        return f"{draining}{link}; {plural(running, 'task runs', 'tasks run')}"

    def _count(self, results: list[Result]) -> None:
        for result in results:
            self.finished[OUTCOMES[result.outcome]] += 1
        own = (Outcome.DONE, Outcome.FAILED)
        self.runs.observe_all([r.wall_seconds for r in results if r.outcome in own])

    @property
    def spool_bytes(self) -> int:
        """Size of the spool on disk."""
        return self._spool.size_bytes

    @property
    def spool_degraded(self) -> bool:
        """Whether results are only in memory."""
        return self._spool.degraded is not None

    # -- the way out -------------------------------------------------------------------------------

    def on_refused(self, reason: str) -> None:
        self.refused = reason
        self.done.set()

    def on_progress(self) -> None:
        if not self._draining:
            return
        if all(worker.agent.idle for worker in self.sessions):
            self.done.set()
        elif not any(worker.agent.running or worker.agent.ahead for worker in self.sessions):
            self._loop.call_later(UNHEARD_SECONDS, self.done.set)

    def on_signal(self) -> None:
        """Drains at the first signal, stops at a later one."""
        now = self.clock.now()
        if self._signalled_at is None:
            self._signalled_at = now
            self.drain()
        elif now - self._signalled_at >= ONE_WISH_SECONDS:
            self.stop()

    def live_for(self, seconds: float) -> None:
        """Drains in time before the worker's lifetime is over; then what still runs is given back.

        A task that asks for no time would hardly end within the last minute: it starts elsewhere.
        """
        early_seconds = min(LAST_SECONDS, seconds * LAST_SHARE)
        self._loop.call_later(seconds - early_seconds, self.drain)
        self._loop.call_later(seconds, self._end_life)

    def _end_life(self) -> None:
        log.info("the lifetime is over; what runs is stopped, and runs again elsewhere")
        for worker in self.sessions:
            worker.give_back()
        self.on_progress()

    def drain(self) -> None:
        """Takes nothing new, and ends when nothing runs any more."""
        if self._draining:
            return
        running = sum(len(worker.agent.running) for worker in self.sessions)
        log.info("draining: %d tasks run; a second signal ends them", running)
        self._draining = True
        self.on_draining()
        for worker in self.sessions:
            worker.drain()
        self.on_progress()

    def stop(self) -> None:
        """Ends at once; what runs is ended and will be run again elsewhere."""
        log.warning("stopping; running tasks are ended")
        self.stopped = True
        for worker in self.sessions:
            worker.announce_end()
        self.done.set()

    async def close(self) -> None:
        """Ends tasks, connections and the spool. Nothing starts any more."""
        self.done.set()
        await self.executor.close()
        await asyncio.gather(*(worker.session.stop() for worker in self.sessions))
        self._spool.close()
        self.epochs.close()
