"""Two managers of a pool: the one that stands by goes on when the other one is gone, or hangs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from daemons import Spawn, answering, until
from postgresqlkit import PostgresqlServer, database_of, running_server

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

TASKS = 2_000
#: As the issue of a takeover is counted: from the blow until a task is handed out again.
KILLED_SECONDS, FROZEN_SECONDS = 3.0, 10.0


class Pool:
    """A server that lets the newer of two components stay, a database, a worker, two managers."""

    def __init__(
        self, server: PrivateServer, database: PostgresqlServer, spawn: Spawn, directory: Path
    ) -> None:
        self.server = server
        self.database = database
        self.conninfo = database.new_database()
        self._spawn = spawn
        self._directory = directory
        self.lines = directory / "lines"
        (directory / "secret").write_text(server.secret)
        self.jid = f"ada@{server.users_domain}"
        self.password = server.add_account(self.jid)

    def start_manager(self, name: str, *more: object) -> subprocess.Popen[str]:
        server = self.server
        with (self._directory / f"{name}.log").open("a") as log:
            return self._spawn(
                "manager", "run", "--domain", server.domain, "--port", server.component_port,
                "--secret-file", self._directory / "secret", "--admin", self.jid,
                "--data-dir", self._directory / name, "--postgresql", self.conninfo, *more,
                stderr=log,
            )  # fmt: skip

    def start_worker(self) -> None:
        jid = f"w1@{self.server.workers_domain}"
        credentials = self._directory / "credentials"
        credentials.write_text(f"{jid} {self.server.add_account(jid)}\n")
        credentials.chmod(0o600)
        self._spawn(
            "worker", "run", "--pool", self.server.domain, "--port", self.server.client_port,
            "--no-tls", "--credentials", credentials, "--data-dir", self._directory / "worker",
            "--cpus", "2", "--isolation", "plain", stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def left(self) -> list[str]:
        """The lines that tasks have left, one each."""
        return self.lines.read_text().split() if self.lines.exists() else []

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self.database.run(statement, database=database_of(self.conninfo))

    async def submit(self, user: UserConnection) -> None:
        script = f"echo $KESTREL_TASK_ID >> {self.lines}; sleep 0.01"
        spec = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=TASKS)
        await user.ask(rq.SubmitJob(spec=spec))

    async def goes_on(self) -> float:
        """How long it takes until as many tasks have begun as can be in nobody's hands now."""
        began = time.monotonic()
        before = len(self.left())
        handed_out = before + 2 * 64  # what the worker has already, and does without a manager
        await until(lambda: len(self.left()) > min(handed_out, TASKS - 1), 60.0)
        return time.monotonic() - began

    async def all_done_once(self, user: UserConnection) -> None:
        """Waits until all tasks are done; each ran once, and its result was taken in once."""
        async with asyncio.timeout(120.0):
            while True:
                try:
                    answer = await user.ask(rq.ListJobs(jobs="last"))
                except KestrelError:  # nobody leads at the moment
                    await asyncio.sleep(0.1)
                    continue
                assert isinstance(answer, an.Jobs)
                if answer.jobs[0].state != "active":
                    break
                await asyncio.sleep(0.1)
        assert (answer.jobs[0].state, answer.jobs[0].done) == ("done", TASKS)
        assert sorted(self.left(), key=int) == [str(n) for n in range(TASKS)]
        assert self.sql("SELECT attempts, tasks FROM jobs") == [(TASKS, TASKS)]

    async def seen(self, user: UserConnection) -> list[tuple[bool, str]]:
        answer = await user.ask(rq.PoolStatus())
        assert isinstance(answer, an.PoolSummary)
        return [(each.leads, each.problem) for each in answer.managers]

    async def until_one_stands_by(self, user: UserConnection) -> None:
        async with asyncio.timeout(60.0):
            while await self.seen(user) != [(True, ""), (False, "")]:
                await asyncio.sleep(0.1)


@pytest.fixture
async def pool(spawn: Spawn, tmp_path: Path) -> AsyncIterator[Pool]:
    server = PrivateServer.create(tmp_path / "xmpp")
    file = server._configuration_file
    text = file.read_text()
    words = 'component_conflict_resolve = "kick_old"\n    component_secret ='
    file.write_text(text.replace("component_secret =", words))
    process = await asyncio.create_subprocess_exec(*server.command())
    await server.wait_ready()
    with running_server(fsync=True) as database:
        yield Pool(server, database, spawn, tmp_path)
    process.kill()
    await process.wait()


@pytest.fixture
async def user(pool: Pool) -> AsyncIterator[UserConnection]:
    async with connect_user(
        pool.jid, pool.password, pool.server.domain, LOOPBACK, pool.server.client_port, tls=False
    ) as found:
        yield found


@pytest.fixture
def frozen() -> Iterator[Callable[[subprocess.Popen[str]], None]]:
    """Freezes a process; it goes on at the end, so that it can be ended."""
    found: list[subprocess.Popen[str]] = []

    def freeze(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGSTOP)
        found.append(process)

    yield freeze
    for process in found:
        process.send_signal(signal.SIGCONT)


async def test_a_manager_that_is_killed_is_replaced_and_nothing_runs_twice(
    pool: Pool, user: UserConnection
) -> None:
    first = pool.start_manager("a")
    await answering(user)
    pool.start_manager("b")
    await pool.until_one_stands_by(user)
    pool.start_worker()
    await pool.submit(user)
    await until(lambda: len(pool.left()) > TASKS // 8, 60.0)
    first.kill()
    first.wait()
    took = await pool.goes_on()
    print(f"killed: {took:.2f} s")
    assert took < KILLED_SECONDS
    await pool.all_done_once(user)


async def test_a_manager_that_is_frozen_is_replaced_and_says_nothing_when_it_goes_on(
    pool: Pool, user: UserConnection, frozen: Callable[[subprocess.Popen[str]], None]
) -> None:
    first = pool.start_manager("a")
    await answering(user)
    pool.start_manager("b")
    await pool.until_one_stands_by(user)
    pool.start_worker()
    await pool.submit(user)
    await until(lambda: len(pool.left()) > TASKS // 8, 60.0)
    frozen(first)
    took = await pool.goes_on()
    print(f"frozen: {took:.2f} s")
    assert took < FROZEN_SECONDS
    first.send_signal(signal.SIGCONT)
    await pool.all_done_once(user)
    await pool.until_one_stands_by(user)
    assert "it stands by from now on" in pool.log("a")
    assert first.poll() is None


async def test_an_admin_hands_the_pool_over_and_back(pool: Pool, user: UserConnection) -> None:
    managers = [pool.start_manager("a")]
    await answering(user)
    managers.append(pool.start_manager("b"))
    await pool.until_one_stands_by(user)
    pool.start_worker()
    await pool.submit(user)
    for _ in range(2):
        await until(lambda: len(pool.left()) > TASKS // 8, 60.0)
        assert isinstance(await user.ask(rq.HandOver()), an.Changed)
        took = await pool.goes_on()
        print(f"handed over: {took:.2f} s")
        await answering(user)
        await pool.until_one_stands_by(user)
    await pool.all_done_once(user)
    assert [each.poll() for each in managers] == [None, None]
    assert pool.sql("SELECT epoch FROM pool") == [(3,)]


async def test_a_pool_with_one_manager_is_handed_to_nobody(
    pool: Pool, user: UserConnection
) -> None:
    pool.start_manager("a")
    await answering(user)
    with pytest.raises(KestrelError, match="no manager stands by"):
        await user.ask(rq.HandOver())
    assert await pool.seen(user) == [(True, "")]


async def test_one_that_cannot_reach_the_server_takes_nothing_over(
    pool: Pool, user: UserConnection
) -> None:
    first = pool.start_manager("a")
    await answering(user)
    other = pool.start_manager("b", "--port", "1")
    async with asyncio.timeout(60.0):
        while len(found := await pool.seen(user)) < 2:
            await asyncio.sleep(0.1)
    assert found[1][1].startswith("the XMPP server at 127.0.0.1:1 cannot be reached")
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    await asyncio.sleep(1.0)
    assert pool.sql("SELECT until = '-infinity' FROM leader") == [(True,)]
    assert other.poll() is None
