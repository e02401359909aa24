"""Whole managers that are wired together: pools of a flock in one process, on a clock of their own.

Each has the production manager, its flock and one worker, whose commands end when the test says so.
Only the server, the disk and the clock are doubles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from heapq import heappop
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from jobkit import job_spec

from kestrel_worlds.memory_store import MemoryStore
from kestrel_worlds.simulated_spool import SimulatedSpool
from kestrelctl.core import events as ev
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.end_reason import CANCELLED
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job import guest
from kestrelctl.core.model.records import TokenRecord
from kestrelctl.core.model.worker import isolation
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.lending import LentKey
from kestrelctl.flock.service.flock_service import FlockService
from kestrelctl.flock.service.kept_flock import KeptFlock
from kestrelctl.flock.service.pool_in_flock import PoolInFlock
from kestrelctl.manager.access import Access
from kestrelctl.manager.accounts import TemporaryAccounts
from kestrelctl.manager.listener import ManagerListener
from kestrelctl.manager.members.enrollment import EnrollmentRequests
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.requests.pool import Usage
from kestrelctl.manager.service import Service
from kestrelctl.protocol import codec, directions
from kestrelctl.protocol.pools import FlockMessage
from kestrelctl.store.kept_text import TextFile
from kestrelctl.worker.process import WorkerProcess
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion

START = 1_795_190_000.0
#: From one server to the other.
WAY_SECONDS = 0.001
AWAY = "remote-server-not-found"


class EagerLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands while there is something to do, and then goes to what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.moment = START
        # Of a moment so far from 0, a float holds no more.
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self.moment

    def _run_once(self) -> None:
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            heappop(timers)
        if not self._ready and timers:  # type: ignore[attr-defined]
            self.moment = max(self.moment, timers[0].when())
        super()._run_once()  # type: ignore[misc]


def on_its_own_clock(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Runs a test on such a loop."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=EagerLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def pass_by(seconds: float) -> None:
    """So much time of the loop's clock."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


class Hands:
    """The `Executor` of a worker: commands run until the test ends them.

    Attributes:
        running: what runs, by the number of the attempt.
        started: all that ever began, in order.
    """

    def __init__(self, on_completion: Callable[[Completion], None]) -> None:
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = 0
        self.running: dict[int, CommandSpec] = {}
        self.started: list[CommandSpec] = []
        self.complete = on_completion

    def start(self, command: CommandSpec) -> None:
        self.running[command.number] = command
        self.started.append(command)

    def end(self, **how: Any) -> None:
        """All that runs ends so."""
        for number in list(self.running):
            del self.running[number]
            self.complete(Completion(number, **({"exit_code": 0} | how)))

    def kill(self, number: int, reason: str = CANCELLED) -> bool:
        if self.running.pop(number, None) is None:
            return False
        self.complete(Completion(number, reason=reason))
        return True

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """There is none."""

    def used(self, numbers: Any) -> dict[int, tuple[float, int]]:
        return {}

    def left(self) -> list[CommandSpec]:
        return []

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        return b"so far"[offset : offset + limit]

    async def close(self) -> None:
        """Nothing is held."""


class KeptSpools:
    """Where results of loans wait, on a disk that outlives managers."""

    def __init__(self) -> None:
        self.of: dict[LentKey, SimulatedSpool] = {}

    def open(self, borrower: str, loan: str) -> SimulatedSpool:
        return self.of.setdefault((borrower, loan), SimulatedSpool())

    def kept(self) -> list[LentKey]:
        return sorted(self.of)

    def remove(self, borrower: str, loan: str) -> None:
        self.of.pop((borrower, loan), None)


class Neighbourhood:
    """The servers of some pools, and what is said between them.

    Attributes:
        said: (from, to, text) of all that went from one domain to another.
        cut: pools that nobody reaches, and that reach nobody.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.pools: dict[str, PoolOfFlock] = {}
        self.said: list[tuple[str, str, str]] = []
        self.cut: set[str] = set()
        self._loop = asyncio.get_running_loop()

    def open(self, domain: str, through: str = "", cpus: float = 2.0, **how: Any) -> PoolOfFlock:
        """A pool begins, in the flock of another one if that is named."""
        pool = self.pools[domain] = PoolOfFlock(self, domain, through or domain, **how)
        pool.begin()
        if cpus:
            pool.add_worker(cpus)
        return pool

    async def reopen(self, domain: str, *, alone: bool = False) -> PoolOfFlock:
        """Its manager stops, and another process begins with what is durable.

        Args:
            alone: its worker only comes back with `greet`.
        """
        old = self.pools[domain]
        await old.stop()
        new = self.pools[domain] = PoolOfFlock(self, domain, old.through, store=old.store)
        new.spools, new.process, new.hands = old.spools, old.process, old.hands
        new.rebuild_flock()
        new.begin()
        new.worker_there = not alone
        for session in new.process.sessions:
            session.on_offline("the manager is away")
        if not alone:
            new.greet()
        return new

    def carry(self, sender: str, to: str, arrive: Callable[[PoolOfFlock], None]) -> None:
        """A stanza goes its way; one that cannot be delivered comes back."""
        theirs = to.partition("/")[0].rpartition("@")[2]
        ours = sender.partition("/")[0].rpartition("@")[2]
        self._loop.call_later(WAY_SECONDS, self._arrive, ours, theirs, to, arrive)

    def _arrive(
        self, ours: str, theirs: str, to: str, arrive: Callable[[PoolOfFlock], None]
    ) -> None:
        if theirs in self.pools and not {ours, theirs} & self.cut:
            arrive(self.pools[theirs])
        elif ours in self.pools:
            self.pools[ours].listener.on_bounce(to, AWAY)

    def messages(self, sender: str, to: str, kind: type[Any]) -> list[Any]:
        """What one flock has told another of a kind."""
        found = [
            directions.flock.decode(text)
            for one, other, text in self.said
            if (one, other) == (f"flock@{sender}", f"flock@{to}")
        ]
        return [each for each in found if isinstance(each, kind)]


class PoolOfFlock:
    """The manager of one pool, and its worker."""

    hands: Hands

    def __init__(
        self,
        around: Neighbourhood,
        domain: str,
        through: str,
        *,
        store: Any = None,
        **settings: Any,
    ) -> None:
        self.around = around
        self.domain = domain
        self.through = through
        self.store = store or MemoryStore()
        self.settings = FlockSettings(**({"reclaim_minutes": 0.5} | settings))
        self.spools = KeptSpools()
        self.worker = f"w1@workers.{domain}/1"
        self.worker_there = True
        loop = asyncio.get_running_loop()
        self.clock: Any = SimpleNamespace(now=loop.time, wall=loop.time)
        options = ManagerOptions(
            domain=domain, secret_file=Path("secret"), data_dir=around.directory / domain
        )
        access = Access(options)
        self.service = Service(
            Pool(self.store.open(), options.config()), self.store, domain, self.clock
        )
        nobody: Any = SimpleNamespace()
        enrollment = EnrollmentRequests(
            self.service,
            nobody,
            access,
            TemporaryAccounts(TextFile(around.directory / f"{domain}-invited")),
        )
        self.dispatcher = RequestDispatcher(
            self.service, enrollment, lambda: Usage(cpu_seconds=0.0, rss_bytes=0)
        )
        self.session: Any = SimpleNamespace(
            online=True,
            link="up",
            refused=None,
            send=self._send,
            send_body=lambda text, to, sender=None: None,
            send_presence=self._send_presence,
            backlog_bytes=lambda: 0,
            when_taken=lambda done: loop.call_soon(done),
            certificate=lambda: None,
        )
        self.service.session = self.session
        self._access = access
        self.rebuild_flock()

    def rebuild_flock(self) -> None:
        """The flock's service, with the spools that there are."""
        self.kept = KeptFlock(self.service, self.dispatcher.pending, "plain")
        self.flock = FlockService(
            self.service,
            self.dispatcher.outputs,
            self.settings,
            self.spools,
            Random(1),
            self.kept.policy,
        )
        self.standing = PoolInFlock(self.service, self.flock, self.kept, self.through)
        self.listener = ManagerListener(
            self.service, self.dispatcher, self._access, self.domain, self.flock
        )
        self.listener.session = self.session

    async def put(self, setting: FlockRule | TokenRecord) -> None:
        """An admin sets something, such as a rule; returns when it is durable."""
        await self.dispatcher.pending.answer_to(
            lambda token: ev.PutSetting(
                at=self.service.now(), cause="root", request=token, setting=setting
            )
        )

    def begin(self) -> None:
        self.listener.on_online()
        self.standing.begin()

    async def stop(self) -> None:
        """The manager is gone; its worker goes on."""
        self.standing.close()
        await self.flock.close()
        self.session.online = False

    # -- what it says ------------------------------------------------------------------------------

    def _send(self, text: str, to: str, sender: str | None = None) -> None:
        if not self.session.online:
            return
        if to == self.worker:
            self.around.carry(
                f"pool@{self.domain}", f"pool@{self.domain}", lambda pool: pool.to_worker(text)
            )
            return
        address = sender or f"pool@{self.domain}"
        self.around.said.append((address, to, text))
        self.around.carry(address, to, lambda pool: pool.listener.on_payload(address, to, text))

    def _send_presence(
        self, to: str, kind: str | None = None, sender: str = "", show: str = "", status: str = ""
    ) -> None:
        if self.session.online and sender:
            kind = kind or "available"
            self.around.carry(sender, to, lambda pool: pool.listener.on_presence(sender, to, kind))

    def says(self, other: str, message: FlockMessage) -> None:
        """Its flock tells another something that the test has made up."""
        self._send(codec.encode(message), f"flock@{other}", f"flock@{self.domain}")

    # -- its worker --------------------------------------------------------------------------------

    def add_worker(self, cpus: float, **offered: Any) -> None:
        ad = WorkerAd(
            assets={"cpus": cpus, "memory": 8e9},
            tags=(guest.TAG, *isolation.tags_of("plain"), "stages"),
            host=f"host.{self.domain}",
            **offered,
        )

        def hands(on_completion: Callable[[Completion], None]) -> Hands:
            self.hands = Hands(on_completion)
            return self.hands

        self.process = WorkerProcess("one", SimulatedSpool(), hands, self.clock, Random(2))
        self.process.add_session(self.domain, ad, self.worker, self._connect)
        self._life = asyncio.get_running_loop().create_task(self.process.run())

    def greet(self) -> None:
        """Its worker reaches the manager again."""
        self.worker_there = True
        for session in self.process.sessions:
            session.on_online()

    def lose_worker(self) -> None:
        """Its worker is gone, with all that it ran."""
        self.worker_there = False
        self.listener.on_presence(self.worker, f"pool@{self.domain}", "unavailable")

    def _connect(self, worker: Any) -> Any:
        def send(text: str, to: str, sender: str | None = None) -> None:
            if self.worker_there:
                self.around.carry(
                    to, to, lambda pool: pool.listener.on_payload(self.worker, to, text)
                )

        async def stop() -> None:
            """Nobody is told."""

        loop = asyncio.get_running_loop()
        return SimpleNamespace(
            online=True,
            refused=None,
            link="up",
            start=lambda: loop.call_soon(worker.on_online),
            stop=stop,
            send=send,
            send_presence=lambda *args, **kwargs: None,
            when_taken=lambda done: loop.call_soon(done),
            backlog_bytes=lambda: 0,
            certificate=lambda: None,
        )

    def to_worker(self, text: str) -> None:
        """The own manager says something to the worker."""
        self.process.sessions[0].on_payload(f"pool@{self.domain}", self.worker, text)

    # -- its users ---------------------------------------------------------------------------------

    def submit(self, tasks: int = 1, **spec: Any) -> int:
        """A user hands in a job; returns its id."""
        job_id = self.service.pool.next_job_id
        fields: dict[str, Any] = {"argv": ("task", "{}"), "count": tasks} | spec
        self.service.handle(
            ev.Submit(
                at=self.service.now(),
                request=f"test {job_id}",
                owner=f"ada@users.{self.domain}",
                spec=job_spec(**fields),
            )
        )
        return job_id

    def cancel(self, job_id: int) -> None:
        """An admin has a job cancelled."""
        self.service.handle(ev.Cancel(at=self.service.now(), request="c", job_id=job_id))

    def job(self, job_id: int) -> Job:
        found = self.service.pool.job(job_id)
        assert found is not None, f"job {job_id} has ended"
        return found

    def guests(self) -> list[Job]:
        """The jobs of others that it has."""
        return [job for job in self.service.pool.jobs if job.spec.guest is not None]

    def ended(self, job_id: int) -> list[Any]:
        """What became of the tasks of a job, as it is stored."""
        return list(self.store.tasks(job_id, limit=1000))
