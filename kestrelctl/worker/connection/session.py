"""One worker session: a connection, the agent that decides for it, a share of the executor."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from random import Random
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from kestrelctl.clock_and_session import Clock, Session
from kestrelctl.core.agent.agent import Agent, LocalAttempt
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.counting.stored_totals import StoredTotals
from kestrelctl.core.model.end_reason import EndKind, EndReason
from kestrelctl.core.model.job.exits import Exits
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import (
    Template,
    filled,
    is_alike_for_all,
    problem_with_filling,
)
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.validate import problem_with_template
from kestrelctl.core.model.worker.ad import WorkerAd, bookable, changed, unit_ids
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.core.model.worker.assets import MILLI
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.core.pacing.heartbeat import pause_seconds
from kestrelctl.errors import KestrelError
from kestrelctl.metrics.stanzas import BOUNCE, UNREADABLE, StanzaCounts
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol.channels import ToTask
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks
from kestrelctl.protocol.commands import ReadProperties, RunCommand
from kestrelctl.protocol.workers import StartEnvironment, StopEnvironment
from kestrelctl.timer import Timer
from kestrelctl.worker.connection.channels import SessionChannels
from kestrelctl.worker.connection.checkpoints import SessionCheckpoints
from kestrelctl.worker.connection.commands import SessionCommands
from kestrelctl.worker.connection.environments import SessionEnvironments
from kestrelctl.worker.connection.manager_epochs import ManagerEpochs
from kestrelctl.worker.connection.parent_file_questions import ParentFileQuestions
from kestrelctl.worker.connection.properties import SessionProperties
from kestrelctl.worker.connection.stage_reports import StageReports
from kestrelctl.worker.connection.usage_reports import UsageReports
from kestrelctl.worker.run.executor import CommandSpec, Completion, Executor
from kestrelctl.worker.run.variables import Environments, host_lines

log = logging.getLogger(__name__)

#: Pause before the pool is told hello again when the server says that nobody is there; doubled each
#: time, because the server may note each try in its log. A manager that comes asks those it knows;
#: others must not wait long for one that comes for the first time.
NOBODY_SECONDS = 1.0
LONGEST_NOBODY_SECONDS = 15.0
#: The same when it seems to be there; doubled each time, because a welcome that is under way to the
#: hello before does not count.
UNANSWERED_SECONDS = 10.0
LONGEST_UNANSWERED_SECONDS = 320.0
#: Tasks write no more to their channels while more than this waits in the connection.
ROOM_BYTES = 256 * 1024
#: Results travel in stanzas of about this size at most.
REPORT_BYTES = 100_000
REPORT_RESULTS = 512
#: The bytes of a stored file there, and of each of its pieces, with its address.
FILE_BYTES = 150
_lanes = itertools.count(1)  # of all sessions, which share an executor
PIECE_BYTES = 400


class SessionHost(Protocol):
    """The part of a worker process that its sessions share."""

    executor: Executor
    incarnation: str
    stanzas: StanzaCounts
    stored: StoredTotals
    epochs: ManagerEpochs
    clock: Clock
    random: Random  #: spreads over time what many workers do

    def wants_to_start(self, session: WorkerSession) -> None:
        """Calls `session.next_command` and executes it when it is this session's turn."""

    def spool(self, result: Result, seal: Seal, account: str) -> None:
        """Makes a result survive the process, before the next reports go out."""

    def forget(self, numbers: list[int]) -> None:
        """Forgets results that are safe with the manager."""

    def wants_to_report(self, session: WorkerSession) -> None:
        """Calls `session.report` once what was spooled is written."""

    def on_refused(self, reason: str) -> None:
        """Notes that the pool does not want this worker."""

    def on_progress(self) -> None:
        """Notes that a session may have become idle."""


class _LookedAt(NamedTuple):
    """The facts about a template, which all attempts of a job share.

    Attributes:
        problem: what is wrong with it, whatever its manager has thought; empty if all is well.
        program: what each of its tasks runs; None if their commands differ.
    """

    template: Template
    problem: str
    program: Program | None


class _Return:
    """Attempts that are to be given back.

    Args:
        numbers: those that have not started.
        open: those of which that is not known yet.
    """

    __slots__ = ("numbers", "open")

    def __init__(self, numbers: list[int], open: set[int]) -> None:
        self.numbers = numbers
        self.open = open


class WorkerSession:
    """A worker, as the pool sees it.

    Attributes:
        hears: reads what the pool says to it.
        most_attempts: the most that it takes at a time.
        most_ahead: how many may wait at the executor.
    """

    def __init__(
        self, name: str, pool: str, ad: WorkerAd, agent: Agent, host: SessionHost, jid: str
    ) -> None:
        self.hears: codec.Codec[directions.ToAnyWorker] = directions.to_worker
        self.most_attempts = workers.MOST_ATTEMPTS
        self.most_ahead = 0
        self._looked_at: _LookedAt | None = None  # the last that was
        self.agent = agent
        self.ad = ad
        self.account = jid.partition("/")[0]
        self._known_units = dict(ad.units)
        self.logins = 0
        self.session: Session
        self._name = name
        self._pool = pool
        self._manager = f"pool@{pool}"
        self._host = host
        self._now = host.clock.now
        self._random = host.random
        self._environments = Environments(jid, ad=ad)
        self._stages = StageReports(self._send, lambda: agent.welcomed)
        self._checkpoints = SessionCheckpoints(agent, lambda: host.executor, self._send)
        self._report_timer = Timer(self._report_due)
        self._heartbeat_timer = Timer(self._heartbeat)
        self._hello_timer = Timer(self._hello)
        self._unanswered = 0
        self._lanes: dict[tuple[tuple[str, int], ...], int] = {}
        self._returns: list[_Return] = []
        self._withdrawing: set[int] = set()
        self._heartbeat_seconds = 0.0
        self._usage = UsageReports(agent, host, self._send)
        self._spoke_at = self._heartbeat_planned_at = 0.0
        self.parent_files = ParentFileQuestions(agent, self._send)
        self.environments = SessionEnvironments(self, agent, self._send)
        self.properties = SessionProperties(agent, self._send)
        self.commands = SessionCommands(agent, self._send)
        self.channels = SessionChannels(agent, self._send)
        self._serve: dict[type, Callable[[directions.ToAnyWorker], None]] = {
            workers.Welcome: self._on_welcome,  # type: ignore[dict-item]
            workers.Run: self._on_run,  # type: ignore[dict-item]
            workers.Ack: self._on_ack,  # type: ignore[dict-item]
            workers.Kill: self._on_kill,  # type: ignore[dict-item]
            workers.TakeCheckpoints: self._on_take_checkpoints,  # type: ignore[dict-item]
            workers.Recall: self._on_recall,  # type: ignore[dict-item]
            workers.Who: self._on_who,  # type: ignore[dict-item]
            workers.SetHeartbeat: self._on_set_heartbeat,  # type: ignore[dict-item]
            workers.Resize: self._on_resize,  # type: ignore[dict-item]
            workers.FetchOutput: self._on_fetch_output,  # type: ignore[dict-item]
            workers.FilesFound: self.parent_files.on_found,  # type: ignore[dict-item]
            workers.Refused: self._on_refused,  # type: ignore[dict-item]
            StartEnvironment: self.environments.on_start,  # type: ignore[dict-item]
            StopEnvironment: self.environments.on_stop,  # type: ignore[dict-item]
            RunCommand: self.commands.on_run,  # type: ignore[dict-item]
            ReadProperties: self.commands.on_read,  # type: ignore[dict-item]
            ToTask: self.channels.on_to_task,  # type: ignore[dict-item]
        }

    # -- Listener ----------------------------------------------------------------------------------

    def on_online(self) -> None:
        self._unanswered = 0
        self.logins += 1
        self.session.send_presence(self._manager)
        self._hello()

    def on_offline(self, why: str) -> None:
        if self.session.refused:
            self._host.on_refused(why)
        else:
            log.warning("%s: the server is away: %s", self._name, why)
        self.agent.welcomed = False
        self._stop_timers()
        self._host.on_progress()

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Does nothing: the pool shows no presence to workers."""

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        """Does nothing: workers do not chat."""

    def on_bounce(self, sender: str, condition: str) -> None:
        self._host.stanzas.received(BOUNCE)
        if sender == self._manager:
            # Several messages may bounce at once: only the hellos among them count.
            pause = doubled_seconds(
                NOBODY_SECONDS, max(0, self._unanswered - 1), LONGEST_NOBODY_SECONDS
            )
            self._hello_later(pause * self._random.uniform(0.5, 1.5))

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        if sender != self._manager:
            log.warning("%s: ignored a message of %s, who is not the pool", self._name, sender)
            return
        try:
            message = self.hears.decode(payload)
        except codec.BadMessage as error:
            self._host.stanzas.received(UNREADABLE, len(payload))
            log.warning("%s: ignored a message that cannot be read: %s", self._name, error)
            return
        self._host.stanzas.received(type(message), len(payload))
        self._serve[type(message)](message)

    # -- joining -----------------------------------------------------------------------------------

    def _hello(self) -> None:
        self._stop_heartbeats()
        holds, claims, seals = self.agent.holds()
        self._send(
            workers.Hello(
                version=workers.VERSION,
                incarnation=self._host.incarnation,
                at=round(self._now(), 3),
                ad=self.ad,
                holds=holds,
                claims=claims,
                seals=seals,
                stages=self._stages.all(),
                greeting=self.agent.greeting,
                wants=self.agent.wanted,
                epoch=self._host.epochs.of(self._pool),
            )
        )
        unheard_seconds = doubled_seconds(
            UNANSWERED_SECONDS, self._unanswered, LONGEST_UNANSWERED_SECONDS
        )
        self._unanswered += 1
        self._hello_later(unheard_seconds * self._random.uniform(1.0, 1.5))

    def _hello_later(self, seconds: float) -> None:
        self._hello_timer.set(seconds)

    def _on_who(self, message: workers.Who) -> None:
        self._hello()

    def _on_welcome(self, message: workers.Welcome) -> None:
        if message.incarnation != self._host.incarnation:
            return
        kept = set(self.agent.unacknowledged)
        clock = self._host.clock
        to_kill = self.agent.on_welcome(message.greeting, message.kill, clock.now(), clock.wall())
        if not self.agent.welcomed:
            return
        self._hello_timer.stop()
        if message.epoch is not None:
            self._host.epochs.keep(self._pool, message.epoch)
        self._unanswered = 0
        self._kill(to_kill, kept)
        self._set_heartbeat(message.heartbeat_seconds)
        self._usage.begin(message.usage_seconds)
        self._stages.go_on()
        if self.agent.draining:
            self._send(workers.Leaving())
        self._checkpoints.on_welcome()
        self.environments.on_welcome()
        self.properties.on_welcome()
        self.commands.on_welcome()
        self._go_on()

    def _on_refused(self, message: workers.Refused) -> None:
        log.error("%s: the pool refused: %.300s", self._name, message.reason)
        if not self.agent.welcomed:
            self._host.on_refused(message.reason)

    # -- signs of life -----------------------------------------------------------------------------

    def _on_set_heartbeat(self, message: workers.SetHeartbeat) -> None:
        self._set_heartbeat(message.heartbeat_seconds)

    def _set_heartbeat(self, seconds: float) -> None:
        self._heartbeat_seconds = max(0.1, seconds)
        self._stop_heartbeats()
        self._plan_heartbeat(at_most=self._heartbeat_seconds * self._random.uniform(0.5, 1.0))

    def _heartbeat(self) -> None:
        if self._spoke_at == self._heartbeat_planned_at:
            self._send(workers.Heartbeat())
        self._plan_heartbeat()

    def _plan_heartbeat(self, at_most: float = math.inf) -> None:
        self._heartbeat_planned_at = self._spoke_at
        pause = pause_seconds(
            self._spoke_at, self._now(), self._heartbeat_seconds, self._random.random()
        )
        self._heartbeat_timer.set(min(pause, at_most))

    def _stop_heartbeats(self) -> None:
        self._heartbeat_timer.stop()

    # -- attempts ----------------------------------------------------------------------------------

    def _on_run(self, message: workers.Run) -> None:
        self._acknowledged(message.ack)
        if not self.agent.welcomed:
            return
        attempts = self.agent.attempts + sum(span[3] for span in message.spans)
        if attempts > self.most_attempts:
            log.warning("%s: %d attempts are too many", self._name, attempts)
            self._hello()  # which says that it has none of them
            return
        refused = self.agent.on_run(
            message.spans,
            message.claims,
            message.jobs,
            message.items,
            message.forget,
            self._now(),
            message.counts,
            message.limits,
            message.hosts,
            message.checkpoints,
        )
        if refused:
            self._send(workers.Returned(numbers=refused))
            if not self.agent.draining:
                self._hello()  # the pool thinks that this worker knows a job, and it does not
        self._go_on()

    def _go_on(self) -> None:
        """Lines up if something can start, and has results reported in time."""
        agent = self.agent
        if agent.can_start or (self.most_ahead and agent.can_hand(self.most_ahead)):
            self._host.wants_to_start(self)
        if agent.wanted is not None and (attempts := agent.ask()):
            self._send(workers.Want(attempts=attempts))
        if agent.fresh:
            self._plan_report(self._now())

    def next_command(self) -> CommandSpec | None:
        """Takes the next attempt out of the queue, to be executed at once.

        Its claim is charged from now on, unless it is to wait: the caller must end it with a
        `Completion`, even if it cannot be started. If there is more to start, the session lines up
        again.

        Returns:
            None if nothing can start any more.
        """
        attempt = self.agent.start_next(self._now())
        waits = attempt is None
        if attempt is None:
            attempt = self.agent.hand_next(self.most_ahead) if self.most_ahead else None
            if attempt is None:
                return None
        elif attempt.is_ahead:
            self._host.executor.begin(attempt.number)
            self._go_on()
            return None
        self._go_on()
        template = attempt.template
        known = self._look_at(template)
        refusal = known.problem or problem_with_filling(template, attempt.index, attempt.item)
        if refusal:
            log.warning("%s: attempt %d is refused: %s", self._name, attempt.number, refusal)
            return CommandSpec(attempt.number, template.program, {}, refusal=refusal)
        command = CommandSpec(
            attempt.number,
            known.program or filled(template, attempt.index, attempt.item),
            self._environments.of(attempt),
            attempt.limits.get("memory", 0) // MILLI,
            attempt.limits.get("disk", 0) // MILLI,
            host_lines(attempt.hosts, attempt.claim),
        )
        program = template.program
        if program.checkpoints:
            command = replace(command, checkpoints=self._checkpoints.order(attempt))
        files = template.owner or program.outputs or program.keep_logs or program.checkpoints
        if not (files or program.join or program.stages or program.environment):
            if self.most_ahead and attempt.is_alone:
                command = replace(command, lane=self._lane(attempt), waits=waits)
            return command  # most: it has none of the rest
        return replace(
            command,
            owner=template.owner,
            group=template.group,
            held=HeldAttempt.of(attempt, self.account),
        )

    def _lane(self, attempt: LocalAttempt) -> int:
        """Returns the same number for attempts of this session that are charged alike."""
        amounts = tuple(sorted(attempt.claim.amounts.items()))
        lane = self._lanes.get(amounts)
        if lane is None:
            lane = self._lanes[amounts] = next(_lanes)
        return lane

    def on_begun(self, number: int, at: float) -> None:
        """Notes that an attempt of this session has started that waited at the executor."""
        self.agent.on_begun(number, at)
        if self._withdrawing:
            self._settled(number)
        self._go_on()

    def on_withdrawn(self, number: int) -> None:
        """Notes that the executor has forgotten an attempt of this session that waited there."""
        self._settled(number, returned=self.agent.on_withdrawn(number))
        self._go_on()

    def _return(self, numbers: list[int], *, is_answer: bool) -> None:
        """Gives attempts back, with those that have to be withdrawn from the executor first.

        The pool is told in one message, when it is known which of these have not started.

        Args:
            is_answer: whether the pool is told even if there are none.
        """
        waits_for: set[int] = set()
        for number, is_given_back in self.agent.to_withdraw().items():
            if number not in self._withdrawing:
                self._withdrawing.add(number)
                self._host.executor.withdraw(number)
            if is_given_back and not any(number in each.open for each in self._returns):
                waits_for.add(number)
        if numbers or waits_for or is_answer:
            self._returns.append(_Return(numbers, waits_for))
            self._tell_returns()

    def _settled(self, number: int, *, returned: bool = False) -> None:
        """Notes that it is known now whether an attempt that was to be withdrawn has started."""
        self._withdrawing.discard(number)
        for each in self._returns:
            if number in each.open:
                each.open.discard(number)
                if returned:
                    each.numbers.append(number)
        self._tell_returns()

    def _tell_returns(self) -> None:
        """Tells what is given back, in the order in which that was asked for."""
        while self._returns and not self._returns[0].open:
            numbers = self._returns.pop(0).numbers
            if self.session.online:
                self._send(workers.Returned(numbers=sorted(numbers)))

    def _look_at(self, template: Template) -> _LookedAt:
        """Looks at a template once for all attempts of its job that come one after the other."""
        known = self._looked_at
        if known is None or known.template is not template:
            program = template.program if is_alike_for_all(template) else None
            known = _LookedAt(template, problem_with_template(template) or "", program)
            self._looked_at = known
        return known

    def on_stage(self, number: int, name: str) -> None:
        """Notes that a running attempt of this session has begun a stage."""
        self._stages.began(number, name)

    def on_completion(self, end: Completion) -> None:
        """Makes the result of an attempt of this session that has ended."""
        job_id, index = self.agent.identity(end.number)
        template = self.agent.taken(end.number).template
        result = Result(
            number=end.number,
            job_id=job_id,
            index=index,
            outcome=_outcome(end, template.program.success_exits),
            started_at=round(end.started_at, 6),
            wall_seconds=round(end.wall_seconds, 6),
            cpu_seconds=round(end.cpu_seconds, 6),
            peak_bytes=end.peak_bytes,
            exit_code=end.exit_code or 0,
            signal=end.signal or 0,
            reason=end.reason,
            stdout=end.stdout,
            stderr=end.stderr,
            stdout_bytes=end.stdout_bytes,
            stderr_bytes=end.stderr_bytes,
        )
        if end.outputs is not None or end.stored_seconds:
            result = replace(
                result,
                output_files=end.output_files,
                outputs=end.outputs,
                stored_seconds=round(end.stored_seconds, 6),
                stdout_stored=end.stdout_stored,
                stderr_stored=end.stderr_stored,
            )
            self._host.stored.count(result, keep_logs=template.program.keep_logs)
        if template.program.stages:
            rounded = [replace(run, wall_seconds=round(run.wall_seconds, 6)) for run in end.stages]
            result = replace(result, stages=tuple(rounded))
            self._stages.ended(end.number)
        if end.checkpoint is not None:
            result = replace(result, checkpoint=end.checkpoint)
        self._checkpoints.ended(end.number)
        self._spool(self.agent.on_completion(result, self._now()))
        if self._withdrawing:
            self._settled(end.number)
        self._go_on()

    def _on_kill(self, message: workers.Kill) -> None:
        kept = set(self.agent.unacknowledged)
        clock = self._host.clock
        self._kill(self.agent.on_kill(message.numbers, clock.now(), clock.wall()), kept)
        self._go_on()

    def _kill(self, running: list[int], kept: set[int]) -> None:
        """Ends attempts that run, and spools the results of those that had not begun.

        Args:
            kept: the numbers of results that were there before.
        """
        for number in running:
            self._host.executor.kill(number)
        for number, result in self.agent.unacknowledged.items():
            if number not in kept:
                self._spool(result)

    def _spool(self, result: Result) -> None:
        self._host.spool(result, self.agent.seal_of(result), self.account)

    def _on_take_checkpoints(self, message: workers.TakeCheckpoints) -> None:
        self._checkpoints.on_take(message)
        self._go_on()

    def _on_recall(self, message: workers.Recall) -> None:
        self._return(self.agent.on_recall(message.numbers), is_answer=True)
        self._go_on()

    def _on_ack(self, message: workers.Ack) -> None:
        self._acknowledged(message.numbers)

    def _acknowledged(self, numbers: list[int]) -> None:
        known = self.agent.on_ack(numbers)
        if known:
            self._host.forget(known)
        if self.agent.idle:
            self._host.on_progress()

    # -- capacity ----------------------------------------------------------------------------------

    def _on_resize(self, message: workers.Resize) -> None:
        ad = changed(self.ad, message.change, self._known_units)
        problem = problem_with_ad(ad)
        if problem:
            self._send(workers.Resized(ad=self.ad, request=message.request, problem=problem[:500]))
        else:
            log.info("%s: the pool has it offer %s", self._name, ad.assets)
            for asset in message.change.units:
                units = {unit.id: unit for unit in self._known_units.get(asset, ())}
                units.update((unit.id, unit) for unit in ad.units[asset])
                self._known_units[asset] = tuple(units.values())
            self.resize(ad, message.request)

    def resize(self, ad: WorkerAd, request: str = "") -> None:
        """Offers more or less from now on; what runs goes on.

        Args:
            ad: one without a problem (`validate.problem_with_ad`).
            request: the request that this answers; empty if nobody asked.
        """
        returned = self.agent.resize(bookable(ad), unit_ids(ad))
        self.ad = ad
        self._environments.offer(ad)
        if self.session.online:  # also before a welcome: the hello under way has the ad of before
            self._send(workers.Resized(ad=ad, request=request))
        self._return(returned, is_answer=False)
        self._go_on()

    # -- reports -----------------------------------------------------------------------------------

    def _plan_report(self, moment: float) -> None:
        at = self.agent.report_at()
        if at is None:
            return
        if at <= moment:
            self._host.wants_to_report(self)
        else:
            self._report_timer.set_once(at - moment)

    def _report_due(self) -> None:
        self._plan_report(self._now() + 0.001)

    def report(self) -> None:
        """Sends the fresh results; the process calls this when they are spooled."""
        if not self.agent.welcomed:
            return
        batch: list[Result] = []
        size = 0
        for result in self.agent.take_report():
            batch.append(result)
            size += 80 + 2 * (len(result.stdout) + len(result.stderr) + len(result.reason))
            for stored in result.stored_files():
                size += FILE_BYTES + PIECE_BYTES * len(stored.pieces)
            if size > REPORT_BYTES or len(batch) >= REPORT_RESULTS:
                self._send_report(batch)
                batch, size = [], 0
        if batch:
            self._send_report(batch)

    def _send_report(self, results: list[Result]) -> None:
        self._send(workers.Report(results=results, seals=self.agent.seals_of(results)))

    # -- output ------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether so little waits in the connection that tasks may write more to their channels."""
        return self.session.backlog_bytes() < ROOM_BYTES

    def _on_fetch_output(self, message: workers.FetchOutput) -> None:
        limit = max(1, min(message.limit, REPORT_BYTES))
        try:
            data = self._host.executor.read_output(
                message.number, message.stream, message.offset, limit + 1
            )
        except (KestrelError, OSError):
            self._send(workers.Output(request=message.request, offset=message.offset))
            return
        self._send(
            workers.Output(
                request=message.request,
                offset=message.offset,
                data=data[:limit],
                size_bytes=message.offset + len(data),
            )
        )

    # -- leaving -----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Gives back what has not started and takes nothing new.

        This does not wait for a welcome: a hello that is under way names what is given back, and
        the pool hears of both in order. Without a connection there is nothing to say: the next
        hello names only what is left.
        """
        returned = self.agent.drain()
        if self.session.online:
            self._send(workers.Leaving())
        self._return(returned, is_answer=False)

    def announce_end(self) -> None:
        """Says that this worker is about to stop, so that it does not count as lost to a fault."""
        if self.session.online:
            self._send(workers.Leaving())

    def give_back(self) -> None:
        """Stops what runs. The pool did not ask for that, so it has these tasks run again."""
        for number in [*self.agent.running, *self.agent.ahead]:
            self._host.executor.kill(number)

    def _send(self, message: workers.Message) -> None:
        self._spoke_at = self._now()
        text = codec.encode(message)
        self._host.stanzas.sent(type(message), len(text))
        self.session.send(text, self._manager)

    def _stop_timers(self) -> None:
        self._stop_heartbeats()
        self._stages.stop()
        self._usage.stop()
        self.properties.stop()
        self._report_timer.stop()
        self._hello_timer.stop()


def _outcome(end: Completion, success_exits: Exits) -> int:
    if end.is_success(success_exits):
        return Outcome.DONE
    if end.checkpoint is not None:
        return Outcome.GOES_ON
    kind = EndReason.of(end.reason).kind
    if kind in (EndKind.CANCELLED, EndKind.MOVED):
        return Outcome.KILLED
    return Outcome.UNABLE if kind.runs_elsewhere else Outcome.FAILED
