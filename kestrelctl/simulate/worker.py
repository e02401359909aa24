"""A worker's shell around the production `Agent`, on simulated time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kestrelctl.core.agent.agent import Agent, Start
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.assets import amounts
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.pacing.heartbeat import pause_seconds as heartbeat_pause_seconds
from kestrelctl.protocol import work
from kestrelctl.simulate.audit import Audit, Execution
from kestrelctl.simulate.clock import Clock
from kestrelctl.simulate.network import BOUNCED, Server
from kestrelctl.simulate.process import Process
from kestrelctl.simulate.truth import Fate

#: Between an event and the report that follows from it: company may come.
FLUSH_SECONDS = 0.002
#: Pause before it says hello again when nobody answered; doubled each time.
UNANSWERED_SECONDS = 3.0


class Worker(Process):
    """One machine: a process that comes and goes, a spool that stays, commands that run.

    Args:
        fate: what becomes of an execution of (job id, index) here.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        random: Random,
        server: Server,
        audit: Audit,
        ad: WorkerAd,
        fate: Callable[[str, int, int], Fate],
    ) -> None:
        super().__init__(name, clock, random, server)
        self.ad = ad
        self.audit = audit
        self.spool: dict[int, Result] = {}
        self.repeats_reports = False
        self.agent = Agent(ad.assets)
        self.leaving = False
        self._away_seconds = 0.0
        self._fate = fate
        self._running: set[int] = set()
        self._flush_at: float | None = None
        self._heartbeat_seconds = 0.0
        self._unanswered = 0
        self._heartbeats = 0
        self._spoke_at = clock.now
        audit.machine(name, amounts(ad.assets))

    @property
    def settled(self) -> bool:
        """It is in, and has nothing left to do or to say."""
        return self.alive and self.agent.welcomed and self.agent.idle and not self.spool

    def holds(self) -> tuple[set[int], set[int]]:
        """The numbers of attempts that it has: queued or running; ended and not acknowledged."""
        agent = self.agent
        begun = {attempt.number for attempt in agent.queue} | agent.running.keys()
        return begun, set(agent.unacknowledged)

    # -- life --------------------------------------------------------------------------------------

    def on_start(self) -> None:
        self.agent = Agent(self.ad.assets, self.spool.values())
        self.leaving = False
        self._flush_at = None
        self._unanswered = 0

    def on_killed(self) -> None:
        self._end_commands()

    def _end_commands(self) -> None:
        for number in sorted(self._running):
            self.audit.ended(number, None)
        self._running.clear()

    def leave(self, seconds: float) -> None:
        """Finishes what runs, gives back the rest, ends the process, and is started again later."""
        if not self.alive or self.stopped or self.leaving:
            return
        self.clock.tell(self.name, "leaves")
        self.leaving = True
        self._away_seconds = seconds
        returned = self.agent.drain()
        self._say(work.Leaving())
        self._say(work.Returned(numbers=returned))
        self._depart_if_idle()

    def _depart_if_idle(self) -> None:
        if self.leaving and self.agent.idle:
            self.clock.tell(self.name, "has left")
            self._end()
            self.clock.after(self._away_seconds, self.start)

    def on_connected(self) -> None:
        self._hello()

    def on_disconnected(self) -> None:
        self.agent.welcomed = False

    # -- messages ----------------------------------------------------------------------------------

    def on_message(self, message: Any) -> None:
        now = self.clock.now
        agent = self.agent
        match message:
            case work.Run():
                self._run(message)
            case work.Ack(numbers=numbers):
                for number in agent.on_ack(numbers):
                    self.spool.pop(number, None)
                self._depart_if_idle()
            case work.Welcome():
                self._welcomed(message)
            case work.Who():
                self._hello()
            case work.Refused() | work.FetchOutput():
                raise AssertionError(f"nobody expects {message}")
            case _ if message == BOUNCED:
                pause_seconds = self.random.uniform(0.5, 1.5)
                self.arrange(pause_seconds, self._hello_again, agent.greeting)
            case work.Kill(numbers=numbers):
                self._kill(agent.on_kill(numbers, now))
            case work.Recall(numbers=numbers):
                self._say(work.Returned(numbers=agent.on_recall(numbers)))
            case work.SetHeartbeat(heartbeat_seconds=heartbeat_seconds):
                self._heartbeat_every(heartbeat_seconds)
        if self.alive:
            self._pump()

    @property
    def _incarnation(self) -> str:
        return f"{self.name}-{self.life}"

    def _say(self, message: work.Message) -> None:
        self._spoke_at = self.clock.now
        self.send(message)

    def _hello(self) -> None:
        holds = self.agent.holds()
        self._say(
            work.Hello(
                version=work.VERSION,
                incarnation=self._incarnation,
                ad=self.ad,
                greeting=self.agent.greeting,
                holds=holds,
            )
        )
        self._heartbeats += 1
        pause_seconds = UNANSWERED_SECONDS * 2.0**self._unanswered * self.random.uniform(1.0, 1.5)
        self._unanswered = min(self._unanswered + 1, 4)
        self.arrange(pause_seconds, self._hello_again, self.agent.greeting)

    def _hello_again(self, greeting: int) -> None:
        if greeting == self.agent.greeting and not self.agent.welcomed and self.link is not None:
            self._hello()

    def _welcomed(self, message: work.Welcome) -> None:
        if message.incarnation != self._incarnation:
            return
        self._kill(self.agent.on_welcome(message.greeting, message.kill, self.clock.now))
        if not self.agent.welcomed:
            return
        self._unanswered = 0
        self._heartbeat_every(message.heartbeat_seconds)
        if self.leaving:
            self._say(work.Leaving())

    def _run(self, message: work.Run) -> None:
        if not self.agent.welcomed:
            return
        refused = self.agent.on_run(
            message.spans, message.jobs, message.items, message.forget, self.clock.now
        )
        if refused:
            self._say(work.Returned(numbers=refused))
            if not self.agent.draining:
                self._hello()

    def _heartbeat_every(self, seconds: float) -> None:
        self._heartbeat_seconds = seconds
        self._heartbeats += 1
        self._plan_heartbeat(self._heartbeats)

    def _heartbeat(self, series: int, planned_after: float) -> None:
        if series != self._heartbeats:
            return
        if self._spoke_at == planned_after:
            self._say(work.Heartbeat())
        self._plan_heartbeat(series)

    def _plan_heartbeat(self, series: int) -> None:
        pause = heartbeat_pause_seconds(
            self._spoke_at, self.clock.now, self._heartbeat_seconds, self.random.random()
        )
        self.arrange(pause, self._heartbeat, series, self._spoke_at)

    # -- commands ----------------------------------------------------------------------------------

    def _pump(self) -> None:
        now = self.clock.now
        for start in self.agent.startable(now):
            self._start(start)
        due = self.agent.report_at()
        if due is not None and (self._flush_at is None or due < self._flush_at):
            self._flush_at = due
            pause = max(0.0, due - now) + self.random.random() * FLUSH_SECONDS
            self.arrange(pause, self._flush)

    def _flush(self) -> None:
        self._flush_at = None
        due = self.agent.report_at()
        if due is not None and due <= self.clock.now:
            report = work.Report(results=self.agent.take_report())
            for result in report.results:
                self.audit.kept(result.number, result.job_id, result.index, result.outcome)
            self._say(report)
            if self.repeats_reports:
                self._say(report)
        self._pump()

    def _start(self, start: Start) -> None:
        number, template = start.number, start.template
        began_at = self.clock.now
        self._running.add(number)
        self.audit.began(
            Execution(
                number,
                template.job_id,
                start.index,
                self.name,
                amounts(template.request),
                began_at,
            )
        )
        fate = self._fate(template.name, template.job_id, start.index)
        if fate.kills_worker:
            self.clock.after(fate.seconds, self._killed_by, number, self.life)
        else:
            self.clock.after(fate.seconds, self._command_ends, number, fate.outcome, began_at)

    def _kill(self, numbers: list[int]) -> None:
        for number in numbers:
            self.clock.after(
                self.random.uniform(0.0005, 0.01),
                self._command_ends,
                number,
                Outcome.KILLED,
                self.audit.executions[number].began_at,
            )

    def _killed_by(self, number: int, life: int) -> None:
        if number in self._running and life == self.life:
            self.kill()
            self.clock.after(self.random.uniform(0.2, 2.0), self.start)

    def _command_ends(self, number: int, outcome: int, began_at: float) -> None:
        """The machine's own event: it happens whether or not the agent is stopped."""
        if number not in self._running:
            return
        self._running.discard(number)
        self.audit.ended(number, outcome)
        wall_seconds = self.clock.now - began_at
        self.enter(self.life, self._on_exit, number, outcome, began_at, wall_seconds)

    def _on_exit(self, number: int, outcome: int, began_at: float, wall_seconds: float) -> None:
        job_id, index = self.agent.identity(number)
        result = Result(
            number,
            job_id,
            index,
            outcome,
            round(began_at, 6),
            round(wall_seconds, 6),
            exit_code=1 if outcome == Outcome.FAILED else 0,
        )
        self.spool[number] = self.agent.on_exit(result, self.clock.now)
        self._pump()
