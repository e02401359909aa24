"""One production shell under simulated time; the test plays everybody else."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TypeVar

from kestrel_worlds.audit import Audit
from kestrel_worlds.network import DOMAIN, Server
from kestrel_worlds.simulated_machine import SimulatedMachine
from kestrel_worlds.simulated_manager import SimulatedManager
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrel_worlds.truth import Fate, StageFate
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import answers, codec, directions, requests, workers
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks

M = TypeVar("M")

POOL = f"pool@{DOMAIN}"
JOBS = f"jobs@{DOMAIN}"
#: A message is there, and answered, after this long at most.
SOON_SECONDS = 0.05


class Puppet(SimulatedProcess):
    """A node whose words are the test's. It hears all, and keeps it with its moment."""

    def __init__(self, address: str, clock: SimulationClock, server: Server, audit: Audit) -> None:
        super().__init__(address, address, clock, Random(1), server, audit)
        self.heard: list[tuple[float, object]] = []

    async def main(self) -> None:
        self.connection(self).start()
        await asyncio.Event().wait()

    def say(self, message: workers.Message, to: str) -> None:
        assert self.session is not None
        sender = POOL if self.address == DOMAIN else None
        self.session.send(codec.encode(message), to, sender)

    def of(self, kind: type[M]) -> list[M]:
        """The messages of one kind that it has heard."""
        return [message for _, message in self.heard if isinstance(message, kind)]

    def forget(self) -> None:
        self.heard.clear()

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        decoder: codec.Codec[object]
        if self.address == DOMAIN:
            decoder = directions.from_worker
        elif "@users" in self.address:
            decoder = directions.answers
        else:
            decoder = directions.to_worker
        self.heard.append((self.clock.now, decoder.decode(payload)))

    def on_ended(self) -> None:
        pass

    def said(self, payload: str, to: str) -> None:
        pass

    def on_online(self) -> None:
        pass

    def on_offline(self, why: str) -> None:
        pass

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        pass

    def on_bounce(self, sender: str, condition: str) -> None:
        pass

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        self.heard.append((self.clock.now, kind))


class House:
    """A server, and an audit that must have nothing to say."""

    def __init__(self) -> None:
        self.clock = SimulationClock()
        self.audit = Audit(self.clock)
        self.server = Server(self.clock, Random(1), (0.001, 0.001))

    def wait(self, seconds: float = SOON_SECONDS) -> None:
        self.clock.run_until(self.clock.now + seconds)

    def puppet(self, address: str) -> Puppet:
        made = Puppet(address, self.clock, self.server, self.audit)
        made.start()
        return made

    def stranger(self) -> Puppet:
        """Somebody else with a user's account."""
        found = self.puppet(f"mallory@users.{DOMAIN}/1")
        self.wait()
        return found


class Worker(House):
    """A worker with two processors, alone with a pool that is the test.

    Attributes:
        fate: what becomes of each command.
        stage_fate: what becomes of each stage of one.
    """

    def __init__(self, ad: WorkerAd | None = None) -> None:
        super().__init__()
        self.fate = Fate(3600.0, Outcome.DONE)
        self.stage_fate = StageFate(5.0, 1, True)
        self.pool = self.puppet(DOMAIN)
        self.wait()
        self.machine = SimulatedMachine(
            "w0",
            self.clock,
            Random(1),
            self.server,
            self.audit,
            ad or WorkerAd(assets={"cpus": 2.0}),
            lambda kind, index: self.fate,
            lambda stage: self.stage_fate,
            pulls=False,
        )
        self.machine.start()
        self.wait()

    def tell(self, message: workers.Message) -> None:
        """The pool says something, and whatever follows at once has followed."""
        self.pool.say(message, self.machine.address)
        self.wait()

    def hellos(self) -> list[tuple[float, workers.Hello]]:
        return [(at, m) for at, m in self.pool.heard if isinstance(m, workers.Hello)]

    def welcome(
        self,
        *,
        heartbeat_seconds: float = 600.0,
        usage_seconds: float = 0.0,
        kill: list[int] | None = None,
    ) -> None:
        """Answers the latest hello."""
        _, hello = self.hellos()[-1]
        self.tell(
            workers.Welcome(
                incarnation=hello.incarnation,
                greeting=hello.greeting,
                heartbeat_seconds=heartbeat_seconds,
                usage_seconds=usage_seconds,
                kill=kill or [],
            )
        )

    def run(self, first: int, n: int, stages: tuple[Stage, ...] = ()) -> None:
        """Sends attempts of job 1, whose numbers begin with `first`, at the indexes from 0 on."""
        spec = JobSpec(program=Program(argv=("task",), stages=stages), name="long", count=n)
        record = JobRecord(
            job_id=1, owner="ada", spec=spec, submitted_at=self.clock.now, state="active"
        )
        self.audit.committed([record])
        self.tell(
            workers.Run(
                spans=[(first, 1, 0, n, 0, 0)], claims=[{"cpus": 1000}], jobs=[Template.of(1, spec)]
            )
        )

    @property
    def running(self) -> list[int]:
        return [execution.number for execution in self.audit.running()]

    def outcomes(self) -> dict[int, int]:
        """What was reported, by attempt number."""
        return {
            r.number: r.outcome for report in self.pool.of(workers.Report) for r in report.results
        }


class Manager(House):
    """A manager with one worker and one user, both of them the test."""

    def __init__(
        self, config: Config | None = None, commit_seconds: tuple[float, float] = (0.01, 0.01)
    ) -> None:
        super().__init__()
        self.store = SimulatedStore(self.clock, Random(1), commit_seconds, self.audit.committed)
        self.manager = SimulatedManager(
            self.clock,
            Random(1),
            self.server,
            self.store,
            self.audit,
            config or Config(),
            check=True,
        )
        self.manager.start()
        self.wait()
        self.worker = self.puppet(f"w0@workers.{DOMAIN}/1")
        self.audit.machine(self.worker.address, {})
        self.user = self.puppet(f"ada@users.{DOMAIN}/1")
        self.wait()
        self._asked = 0

    def ask(self, request: requests.Request) -> None:
        """The user asks something."""
        self.user.say(request, JOBS)
        self.wait()

    def submit(self, count: int = 1, **spec: object) -> None:
        made = JobSpec(program=Program(argv=("task",)), name="long", count=count, **spec)  # type: ignore[arg-type]
        self.ask(requests.SubmitJob(id="submit", spec=made))

    def fail_a_job(self) -> None:
        """Job 1 has one task, and has failed, durably."""
        self.hello()
        self.submit()
        self.report(self.attempts()[0], Outcome.FAILED)
        self.wait(1.0)
        assert [job.state for job in self.store.jobs()] == ["failed"]

    def failures(self) -> list[str]:
        """The codes of errors that the user was answered."""
        return [answer.code for answer in self.user.of(answers.Failed)]

    def hello(self, **fields: object) -> None:
        self.tell(
            workers.Hello(
                version=workers.VERSION,
                incarnation="one",
                greeting=1,
                ad=WorkerAd(),
                **fields,  # type: ignore[arg-type]
            )
        )

    def tell(self, message: workers.Message) -> None:
        """The worker says something."""
        self.worker.say(message, POOL)
        self.wait()

    def report(
        self, number: int, outcome: int = Outcome.DONE, index: int = 0, **more: object
    ) -> None:
        job_id = self._job_of(number)
        result = Result(
            number,
            job_id,
            index,
            outcome,
            self.clock.now - 1.0,
            1.0,
            **more,  # type: ignore[arg-type]
        )
        self.audit.began(number, job_id, index, self.worker.address, None)
        self.audit.ended(number, outcome)
        self.audit.kept(result)
        self.tell(workers.Report(results=[result], seals=self.seals()))

    def _job_of(self, number: int) -> int:
        """The job that an attempt was sent for; 1 if it was not sent."""
        spans = (span for run in self.worker.of(workers.Run) for span in run.spans)
        return next(
            (job_id for first, job_id, _, n, _, _ in spans if first <= number < first + n), 1
        )

    def attempts(self) -> list[int]:
        """The numbers of the attempts that the worker was sent."""
        return [
            number + k
            for run in self.worker.of(workers.Run)
            for number, _, _, n, _, _ in run.spans
            for k in range(n)
        ]

    def seals(self) -> list[Seal]:
        """What the worker was sent with them."""
        return [(*span[:4], span[5]) for run in self.worker.of(workers.Run) for span in run.spans]

    def acknowledged(self) -> list[int]:
        alone = [number for ack in self.worker.of(workers.Ack) for number in ack.numbers]
        return alone + [number for run in self.worker.of(workers.Run) for number in run.ack]
