"""Looks twice a second for what may be for a moment, but must not last."""

from __future__ import annotations

from kestrel_worlds.audit import Audit
from kestrel_worlds.nodes import Nodes
from kestrel_worlds.settings import WorldSettings
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrel_worlds.users import PATIENCE_SECONDS
from kestrelctl.core.pacing.backoff import RETURN_SECONDS
from kestrelctl.core.pool import Pool

#: The time after a disturbance in which everybody must have learned of it and acted, if nothing
#: took time to travel.
GRACE_SECONDS = 4.0
#: Messages, each an answer to the one before, until a worker that was given up has heard all of it:
#:
#: 1. The worker says anything.
#: 2. The pool asks who that is.
#: 3. The worker says what it holds.
#: 4. The pool says what is to be killed.
#: 5. The worker says what it holds once more, because it was asked once more: step 2 comes for
#:    each message that it sent before step 3.
#: 6. The pool says once more what is to be killed.
PASSAGES = 6
#: Messages until an order to kill counts, which it does if it answers the worker's latest hello:
#:
#: 1. The pool orders it in answer to an earlier hello.
#: 2. The worker says its latest hello.
#: 3. The pool orders it in answer to that one.
KILL_PASSAGES = 3
#: Time from the order to the end of a command, if nothing took time to travel.
KILL_SECONDS = 0.5
#: How much longer than usual a slow disk takes, at the most.
SLOWEST = 10.0


class Vigil:
    """Watches one world from outside."""

    def __init__(self, nodes: Nodes, audit: Audit, settings: WorldSettings) -> None:
        self._nodes = nodes
        self._clock = nodes.clock
        self._audit = audit
        self._config = settings.config
        # Two connections, each half as slow again as is typical for it at the most.
        passage_seconds = 2 * 1.5 * settings.latency_seconds[1]
        self.grace_seconds = GRACE_SECONDS + PASSAGES * passage_seconds
        self._kill_seconds = KILL_SECONDS + KILL_PASSAGES * passage_seconds
        self._answer_seconds = (
            PATIENCE_SECONDS + 2 * SLOWEST * settings.commit_seconds[1] + self.grace_seconds
        )
        self._disturbed_at: dict[str, float] = {}  #: process -> when it was last out of order
        self._in_order_at: dict[str, float] = {}  #: process -> when it was last in order
        self._differing: dict[tuple[str, int], float] = {}  #: (worker, attempt) -> since when
        self._complained: set[tuple[str, object]] = set()

    def look(self) -> None:
        """Notes how things are, and whatever has lasted too long."""
        now = self._clock.now
        for process in self._nodes.processes:
            at = self._in_order_at if process.in_order else self._disturbed_at
            at[process.name] = now
        self._look_at_kills()
        if not self.steady(self._nodes.manager, self.grace_seconds):
            return
        pool = self._nodes.manager.pool
        assert pool is not None
        self._look_at_members(pool)
        self._look_at_holds(pool)
        self._look_at_executions(pool)
        self._look_at_questions()

    def steady(self, process: SimulatedProcess, seconds: float) -> bool:
        """Whether a process has been in order for this long."""
        return self.disturbed(process) + seconds < self._clock.now

    def disturbed(self, process: SimulatedProcess) -> float:
        """Returns when a process was last out of order."""
        since = self._disturbed_at.get(process.name, self._clock.start)
        return max(since, process.disturbed_at)

    def _look_at_members(self, pool: Pool) -> None:
        """Checks that workers out of order are found out, and nobody waits for them for ever."""
        now = self._clock.now
        for process in self._nodes.workers:
            worker = pool.state.workers.get(process.address)
            if worker is None:
                continue
            lease = self._config.lease_seconds(worker.heartbeat_seconds)
            silent = self._in_order_at.get(process.name, self._clock.start)
            late = now - silent > lease + self.grace_seconds and self.steady(
                self._nodes.manager, lease + RETURN_SECONDS + self.grace_seconds
            )
            self._expect(not (late and worker.online), "is believed to be there", process.name)
            given_up = not worker.online and worker.away_until + self.grace_seconds < now
            self._expect(not (given_up and worker.held), "is waited for in vain", process.name)

    def lease_ran_out(self, pool: Pool) -> None:
        """Checks that a worker that was just given up as silent was out of order."""
        now = self._clock.now
        for process in self._nodes.workers:
            worker = pool.state.workers.get(process.address)
            if worker is None or worker.online or worker.offline_since != now:
                continue
            seconds = self._config.lease_seconds(worker.heartbeat_seconds) + self.grace_seconds
            steady = self.steady(process, seconds) and self.steady(self._nodes.manager, seconds)
            self._expect(not steady, "is given up though it is well", process.name)

    def _look_at_holds(self, pool: Pool) -> None:
        """Checks that a worker has what the pool thinks that it has, and the other way round."""
        now = self._clock.now
        differing: dict[tuple[str, int], float] = {}
        for process in self._nodes.workers:
            worker = pool.state.workers.get(process.address)
            agent = process.agent
            if worker is None or agent is None or not self.steady(process, self.grace_seconds):
                continue
            begun = (
                {attempt.number for attempt in agent.queue}
                | agent.running.keys()
                | agent.ahead.keys()
            )
            held = worker.held.keys()
            for number in sorted((held - begun - agent.unacknowledged.keys()) | (begun - held)):
                since = self._differing.get((process.name, number), now)
                differing[process.name, number] = since
                self._expect(since + self.grace_seconds > now, "is held by one side only", number)
        self._differing = differing

    def _look_at_kills(self) -> None:
        """Checks that what was ordered to end has ended, unless something came between."""
        killed_at = self._audit.killed_at
        if not killed_at:
            return
        now = self._clock.now
        manager = self.disturbed(self._nodes.manager)
        disturbed = {worker.address: self.disturbed(worker) for worker in self._nodes.workers}
        for execution in self._audit.running():
            at = killed_at.get(execution.number, now)
            heard = at > max(execution.began_at, manager, disturbed[execution.worker])
            late = at + self._kill_seconds < now
            self._expect(not (heard and late), "runs on", execution.number)

    def _look_at_executions(self, pool: Pool) -> None:
        """Checks that nothing runs for a task that is over, or twice.

        A task that is retried is handed out at once; a slow disk may get it much later.
        """
        now = self._clock.now
        grace = self.grace_seconds
        audit = self._audit
        steady = {worker.address for worker in self._nodes.workers if self.steady(worker, grace)}
        held = {number for worker in pool.state.workers.values() for number in worker.held}
        seen: dict[tuple[int, int], int] = {}
        for execution in audit.running():
            if execution.worker not in steady or execution.began_at + grace > now:
                continue
            task = (execution.job_id, execution.index)
            over_at = min(
                audit.over_since.get(task, now), audit.stopped_since.get(execution.job_id, now)
            )
            retried = execution.began_at > over_at and execution.number in held
            self._expect(
                retried or over_at + grace > now, "runs though its task is over", execution.number
            )
            self._expect(task not in seen, "runs a task that runs already", execution.number)
            seen[task] = execution.number

    def _look_at_questions(self) -> None:
        """Checks that users who ask are answered, if only that it cannot be done now."""
        if not self.steady(self._nodes.manager, self._answer_seconds):
            return
        for user in (*self._nodes.owners, self._nodes.operator):
            if self.steady(user, self._answer_seconds):
                for what, question in user.open.items():
                    waited = self._clock.now - question.asked_at
                    self._expect(waited < self._answer_seconds, "is not answered", what)

    def _expect(self, condition: bool, what: str, who: object) -> None:
        if not condition and (what, who) not in self._complained:
            self._complained.add((what, who))
            self._audit.expect(False, f"{who} {what}")
