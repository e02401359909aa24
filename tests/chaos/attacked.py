"""A pool that is attacked, whoever does it, and those who must not notice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Protocol, TypeVar

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from audit import WITNESS, Told, Witness, accepted, audit
from brokenpool import BrokenPool, left_behind
from puppet import Puppet

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local
from kestrelctl.local.pool_state import pool_directory, read_state
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec
from kestrelctl.protocol import requests as rq

A = TypeVar("A")

NAME = "attacked"
MOST_MANAGER_BYTES = 500 << 20
MOST_SERVER_BYTES = 500 << 20
MOST_LOG_BYTES = 20 << 20
#: Of a text that is shown of a finding.
MOST_CHARACTERS = 2_500
#: Prosody writes one with a word behind it, Python with a sentence.
TRACEBACK = "Traceback"
#: How `kestrelctl` speaks of what nobody has thought of.
UNEXPECTED = "this should not have happened"


class Attack(Protocol):
    """Whoever attacks a pool."""

    async def attack(self) -> None:
        """Attacks for a while, and leaves the pool up."""


class Attacked:
    """A pool as `kestrelctl up` makes it, those who do not attack it, and what did not hold.

    Args:
        directory: for all that the pool keeps, and for what commands read.
        patience_seconds: how long anything may take on a machine that does something else, too.

    Attributes:
        directory: as given.
        patience_seconds: as given.
        options: further words for `kestrelctl up`.
        same_manager: whether the manager must stay the process that it is.
        findings: in words.
        counts: what was sent and came back, by kind.
    """

    def __init__(self, directory: Path, patience_seconds: float = 60.0) -> None:
        self.directory = directory
        self.patience_seconds = patience_seconds
        self.options: tuple[str, ...] = ()
        self.same_manager = True
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self.pool: BrokenPool
        self._manager = 0
        self._honest = f'Machine == "{os.uname().nodename}"'
        self._kept = 0
        #: Jobs of the innocent that must be there in the end, and how many tasks each has.
        self._acknowledged: dict[int, int] = {}
        self._told: dict[int, Told] = {}
        #: How much of each log was looked at, by its inode.
        self._read: dict[int, int] = {}
        self._keys = 0
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }
        self.environment.pop("KESTREL_POOL", None)
        os.environ["XDG_STATE_HOME"] = self.environment["XDG_STATE_HOME"]
        # Below the pool's directory, a copy of it would have the witness of another pool.
        self._witness = directory / "witness"

    # -- the pool ----------------------------------------------------------------------------------

    async def up(self) -> None:
        """Starts the pool, or goes on with it; AssertionError if it does not come up in time."""
        deadline = time.monotonic() + self.patience_seconds
        while True:
            status, told = await self.command("up", "--name", NAME, "--workers", "2", *self.options)
            state = read_state(pool_directory(NAME))
            if state is not None and (status == 0 or "runs already" in told):
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"the pool does not come up: {told}")
            await asyncio.sleep(0.5)
        self.pool = BrokenPool(state, self._witness)
        self._manager = state.manager_pid

    async def down(self) -> None:
        """Stops the pool."""
        status, told = await self.command("down", "--name", NAME)
        if status:
            self.found(f"down ends with status {status}: {told}")

    def found(self, what: str) -> None:
        """Notes what did not hold."""
        if len(what) > MOST_CHARACTERS:
            what = f"{what[: MOST_CHARACTERS // 2]} […] {what[-MOST_CHARACTERS // 2 :]}"
        self.findings.append(what)

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        """Starts `kestrelctl`; what it prints comes on its standard output."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kestrelctl", *words,
            env=self.environment, cwd=self.directory, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip

    async def end(self, process: asyncio.subprocess.Process, *words: str) -> tuple[int, str]:
        """Waits until `kestrelctl` has ended; returns its exit status and all that it printed."""
        shown = " ".join(words)[:300]
        try:
            told, _ = await asyncio.wait_for(process.communicate(), 120.0 + self.patience_seconds)
        except TimeoutError:
            process.kill()
            self.found(f"kestrelctl {shown} does not end")
            return 1, ""
        text = told.decode(errors="replace")
        if TRACEBACK in text or UNEXPECTED in text:
            self.found(f"kestrelctl {shown}: {text}")
        return process.returncode or 0, text

    async def command(self, *words: str) -> tuple[int, str]:
        """Runs `kestrelctl`; returns its exit status and all that it printed."""
        return await self.end(await self.start(*words), *words)

    async def ask(self, request: rq.AnyRequest, kind: type[A]) -> A:
        """Asks as the pool's admin until there is an answer.

        Raises:
            AssertionError: it is of another kind.
        """

        async def work() -> object:
            async with connect_local(self.pool.state, admin=True) as admin:
                return await admin.ask(request, timeout_seconds=self.patience_seconds)

        answer = await self._until_it_works(work)
        assert isinstance(answer, kind), answer
        return answer

    async def _until_it_works(self, work: Callable[[], Awaitable[A]]) -> A:
        """A pool that is on its way up again is asked again, as long as patience goes."""
        deadline = time.monotonic() + self.patience_seconds
        while True:
            try:
                return await work()
            except Exception:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(0.3)

    # -- who must not notice -----------------------------------------------------------------------

    async def keep(self) -> None:
        """An innocent user's job that the attack must leave alone."""
        self._kept = await self._submit_as_abel(
            JobSpec(
                program=Program(argv=("true",)),
                count=3,
                name="kept",
                held=True,
                requirements=self._honest,
            )
        )

    def innocent(self, count: int = 2, seconds: float = 0.0) -> JobSpec:
        """A job whose tasks leave word of what they did, at a worker that does not attack."""
        leave = f'"{{}} {WITNESS}" >>{self._witness}'
        script = f"echo {leave.format('s')}; sleep {seconds}; echo {leave.format('e')}"
        return JobSpec(
            program=Program(argv=("/bin/sh", "-c", script)),
            count=count,
            priority=255,
            requirements=self._honest,
        )

    async def submit_innocent(self, count: int = 2, seconds: float = 0.0) -> int:
        """Submits one, which is looked at in the end."""
        job_id = await self._submit_as_abel(self.innocent(count, seconds))
        self._acknowledged[job_id] = count
        return job_id

    async def _submit_as_abel(self, spec: JobSpec) -> int:
        self._keys += 1
        key = f"abel-{self._keys}"

        async def work() -> int:
            state = self.pool.state
            async with Puppet(state, "abel", "users") as abel:
                request = rq.SubmitJob(id=key, spec=spec, key=key)
                abel.session.send(codec.encode(request), f"jobs@{state.domain}")
                answer = await abel.answer(self.patience_seconds)
            if "job_id" not in answer:
                raise AssertionError(f"an innocent user is told {answer!r:.800}")
            return int(answer["job_id"])

        return await self._until_it_works(work)

    async def look(self) -> None:
        """Notes what does not hold now."""
        self._weigh()
        try:
            count = 2
            ended = await self.pool.ended(await self.submit_innocent(count), self.patience_seconds)
            if ended.done != count:
                self.found(f"an innocent job ended so: {ended}")
            kept = await self._until_it_works(lambda: self.pool.view(self._kept))
            if kept.state != "active" or kept.waiting != 3:
                self.found(f"the job that was kept is {kept}")
        except Exception as error:
            self.found(f"an innocent job does not run: {error!r}")
        self.read_logs()

    def _weigh(self) -> None:
        state = self.pool.state
        if state.manager_pid != self._manager:
            if self.same_manager:
                self.found("the manager is not the process that it was")
            self._manager = state.manager_pid
        for name, pid, most in (
            ("manager", state.manager_pid, MOST_MANAGER_BYTES),
            ("server", state.server_pid, MOST_SERVER_BYTES),
        ):
            with contextlib.suppress(psutil.NoSuchProcess):
                size = psutil.Process(pid).memory_info().rss
                self.counts[f"MB of the {name}"] = size >> 20
                if size > most:
                    self.found(f"the {name} takes {size >> 20} MB")

    async def rest(self) -> None:
        """Waits until none of the innocent's jobs is under way."""
        for job_id in list(self._acknowledged)[-10:]:
            with contextlib.suppress(AssertionError):  # `settle` finds out why
                await self.pool.ended(job_id, self.patience_seconds)

    async def settle(self) -> None:
        """Compares what the pool says of the innocent's jobs with what their tasks did."""
        for job_id in self._acknowledged:
            try:
                await self.pool.ended(job_id, self.patience_seconds)
                self._told[job_id] = await self._tell(job_id, self._told.get(job_id))
            except Exception as error:
                self.found(f"job {job_id} was acknowledged, and now: {error!r}")
        lines = self._witness.read_text().splitlines() if self._witness.exists() else []
        verdict = audit(self._acknowledged, self._told, Witness.read(lines))
        for breach in verdict.breaches[:20]:
            self.found(breach)
        self.counts["innocent tasks"] = sum(self._acknowledged.values())

    async def _tell(self, job_id: int, before: Told | None) -> Told:
        """What the pool says of a job, and what it has said before of accepted results."""
        listed = await self.ask(rq.ListJobs(jobs=str(job_id)), an.Jobs)
        tasks = (await self.ask(rq.ListTasks(job=str(job_id)), an.Tasks)).tasks
        ids = [task.task_id for task in tasks]
        request = rq.TellStory(job=str(job_id), task_ids=ids, limit=100_000)
        story = (await self.ask(request, an.Story)).entries
        seen = before.seen if before else {task.task_id: accepted(task) for task in tasks}
        return Told(listed.jobs[0], tasks, story, seen)

    async def type_commands(self) -> None:
        """What people look at, as those who read it: whatever is shown, it is no traceback."""
        newest = await self.pool.submit(JobSpec(program=Program(argv=("true",))))
        ids = sorted(Random(newest).sample(range(1, newest + 1), min(newest, 3)))
        await asyncio.gather(
            self._type(
                ("job", "list"), ("job", "list", "--where", "Waiting >= 0"), ("pool", "status"),
                ("worker", "list"), ("user", "list"), ("user", "usage"), ("top", "--once"),
            ),
            *(
                self._type(*(("job", look, str(number)) for number in ids), may_fail=True)
                for look in ("info", "explain", "story", "tasks", "graph")
            ),
        )  # fmt: skip

    async def _type(self, *lines: tuple[str, ...], may_fail: bool = False) -> None:
        for words in lines:
            status, told = await self.command(*words, "--pool", NAME)
            if status and not may_fail:
                self.found(f"kestrelctl {' '.join(words)} ends with {status}: {told:.600}")

    def read_logs(self) -> None:
        """Notes tracebacks in what daemons logged, and logs that have grown."""
        for log in sorted(pool_directory(NAME).rglob("*.log*")):
            try:
                state = log.stat()
                read = self._read.get(state.st_ino, 0)
                with log.open("rb") as opened:
                    opened.seek(read if read <= state.st_size else 0)
                    text = opened.read().decode(errors="replace")
            except OSError:  # it has just got another name, or nobody may read it
                continue
            self._read[state.st_ino] = state.st_size
            for found in list(re.finditer(TRACEBACK, text))[:3]:
                place = found.start()
                self.found(f"{log.name}: {text[max(0, place - 300) : place + 2_000]}")
            if state.st_size > MOST_LOG_BYTES:
                self.found(f"{log.name} has {state.st_size:,} bytes")


@contextlib.asynccontextmanager
async def attacked_pool(patience_seconds: float = 60.0) -> AsyncIterator[Attacked]:
    """A pool that is there for the length of a `with`."""
    with tempfile.TemporaryDirectory(prefix="kestrel-attack-", ignore_cleanup_errors=True) as name:
        attacked = Attacked(Path(name), patience_seconds)
        try:
            yield attacked
        finally:
            await attacked.command("down", "--name", NAME, "--delete", "--yes")
            for pid, command in left_behind(Path(name)).items():
                attacked.found(f"process {pid} is left behind: {command[:200]}")
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()
