"""A worker process without processes: its executor and its sessions are doubles."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from kestrel_worlds.simulated_spool import SimulatedSpool
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.worker.connection.session import WorkerSession
from kestrelctl.worker.process import START_SLICE_SECONDS, WorkerProcess
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion

POOL = "example.org"


#: So long a start takes here: the fourth ends a slice.
START_SECONDS = 0.3 * START_SLICE_SECONDS


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds


class Executor:
    """Starts take their time; commands run until the test ends them.

    Attributes:
        limits_bytes: of memory and disk, of what was started.
        joined: whether its standard error goes into its standard output, of each.
        stages: of each that has some.
        killed, begun, withdrawn: numbers.
        held: what would let another process hold each of those that started.
        places: to which addresses they leave files, and whose they are.
        commands: all that started.
    """

    def __init__(
        self,
        clock: Clock,
        on_completion: Callable[[Completion], None],
        computed: list[HeldAttempt],
    ) -> None:
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = 0
        self.started: list[int] = []
        self.limits_bytes: list[tuple[int, int]] = []
        self.joined: list[bool] = []
        self.stages: list[tuple[Stage, ...]] = []
        self.complete = on_completion
        self.broken_for: set[int] = set()
        self.killed: list[int] = []
        self.begun: list[int] = []
        self.withdrawn: list[int] = []
        self.held: list[HeldAttempt | None] = []
        self.places: list[tuple[str, str]] = []
        self.commands: list[CommandSpec] = []
        self._computed = computed
        self._clock = clock

    def start(self, command: CommandSpec) -> None:
        self._clock.seconds += START_SECONDS
        if command.number in self.broken_for:
            raise ValueError(command.number)
        self.started.append(command.number)
        self.limits_bytes.append((command.memory_bytes, command.disk_bytes))
        self.joined.append(command.program.join)
        self.stages += [command.program.stages] if command.program.stages else []
        self.held.append(command.held)
        self.places.append((command.program.output_to, command.owner))
        self.commands.append(command)

    def begin(self, number: int) -> None:
        self.begun.append(number)

    def withdraw(self, number: int) -> None:
        self.withdrawn.append(number)

    def kill(self, number: int, reason: str = "cancelled") -> bool:
        self.killed.append(number)
        return number in self.started

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        return b""

    def left(self) -> list[CommandSpec]:
        return [
            CommandSpec(held.number, Program(argv=("true",)), {}, held=held)
            for held in self._computed
        ]

    async def close(self) -> None:
        """There is nothing to give back."""


class Connection:
    """A session with a server that answers nothing."""

    online = True
    refused: str | None = None
    link = "connected"

    def __init__(self) -> None:
        self.sent: list[str] = []

    def start(self) -> None:
        """It is up already."""

    async def stop(self) -> None:
        """There is nothing to close."""

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        self.sent.append(payload)

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Workers do not chat."""

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        """Nobody looks."""

    def backlog_bytes(self) -> int:
        return 0

    def certificate(self) -> tuple[str, float] | None:
        return None


class Worker:
    """A process with sessions of one processor each. Attempt `10 * i + k` is the kth of session i.

    Attributes:
        executor: what it runs commands with.
        spool: with what an earlier process left.
        connection: of all sessions.
        clock: of the process.
    """

    def __init__(
        self,
        sessions: int,
        left: dict[int, bytes] | None = None,
        computed: list[HeldAttempt] | None = None,
    ) -> None:
        self._computed = computed or []
        self.clock = clock = Clock()
        self.connection = Connection()
        self.spool = SimulatedSpool()
        self.spool.append((left or {}).items())
        self.process = WorkerProcess(
            "one",
            self.spool,
            lambda on_completion: self._executor(clock, on_completion),
            clock,
            Random(1),
        )
        for index in range(sessions):
            ad = WorkerAd(assets={"cpus": 1.0})
            self.process.add_session(POOL, ad, f"w{index}", lambda _: self.connection)
        for session in self.process.sessions:
            session.agent.holds()
            session.agent.on_welcome(session.agent.greeting, [], clock.now(), clock.wall())

    def _executor(self, clock: Clock, on_completion: Callable[[Completion], None]) -> Executor:
        self.executor = Executor(clock, on_completion, self._computed)
        return self.executor

    def give(self, attempts: int) -> None:
        """Each session is sent so many."""
        for index, session in enumerate(self.process.sessions):
            self.tell(
                session,
                workers.Run(
                    spans=[(10 * index, 1, 0, attempts, 0, 0)],
                    claims=[{"cpus": 1000}],
                    jobs=[Template(job_id=1, program=Program(argv=("true",)), count=attempts)],
                ),
            )

    @property
    def said(self) -> list[workers.FromWorker]:
        """What all sessions have sent."""
        return [directions.from_worker.decode(text) for text in self.connection.sent]

    def tell(self, session: WorkerSession, message: workers.Message) -> None:
        session.on_payload(f"pool@{POOL}", "", codec.encode(message))

    async def turn(self) -> list[int]:
        """One turn of the event loop; returns what was started in it."""
        before = len(self.executor.started)
        await asyncio.sleep(0)
        return self.executor.started[before:]


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """As on a full disk: a write that crosses the limit is cut short, the next one fails."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
