"""A pool whose store is in PostgreSQL, when its manager or its database is killed."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from daemons import Spawn, answering, until
from postgresqlkit import PostgresqlServer, database_of, running_server

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

TASKS = 1_000
WORKERS = 2


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A database that waits for its disk."""
    with running_server(fsync=True) as found:
        yield found


class PoolOnPostgresql:
    """A manager and workers, each a process."""

    def __init__(self, xmpp: PrivateServer, conninfo: str, spawn: Spawn, directory: Path) -> None:
        self._xmpp = xmpp
        self._spawn = spawn
        self._directory = directory
        self.conninfo = conninfo
        self.lines = directory / "lines"
        (directory / "secret").write_text(xmpp.secret)
        self.manager = self.starts()
        for name in (f"w{n}" for n in range(WORKERS)):
            jid = f"{name}@{xmpp.workers_domain}"
            credentials = directory / name
            credentials.write_text(f"{jid} {xmpp.add_account(jid)}\n")
            credentials.chmod(0o600)
            spawn(
                "worker", "run", "--pool", xmpp.domain, "--host", LOOPBACK,
                "--port", xmpp.client_port, "--no-tls", "--credentials", credentials,
                "--data-dir", directory / f"{name}-data", "--cpus", "2", "--isolation", "plain",
                stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def starts(self) -> subprocess.Popen[str]:
        """Starts the manager."""
        xmpp = self._xmpp
        self.manager = self._spawn(
            "manager", "run", "--domain", xmpp.domain, "--host", LOOPBACK,
            "--port", xmpp.component_port, "--secret-file", self._directory / "secret",
            "--data-dir", self._directory / "manager", "--postgresql", self.conninfo,
            "--worker-host", xmpp.workers_domain, "--user-host", xmpp.users_domain,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return self.manager

    def spec(self) -> JobSpec:
        """Tasks of which each leaves a line."""
        script = f"echo $KESTREL_TASK_ID >> {self.lines}"
        return JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=TASKS)

    def left(self) -> list[str]:
        """The lines that tasks have left."""
        return self.lines.read_text().split() if self.lines.exists() else []


@pytest.fixture
async def pool(
    private_server: PrivateServer, server: PostgresqlServer, spawn: Spawn, tmp_path: Path
) -> PoolOnPostgresql:
    return PoolOnPostgresql(private_server, server.new_database(), spawn, tmp_path)


@pytest.fixture
async def user(
    private_server: PrivateServer, pool: PoolOnPostgresql
) -> AsyncIterator[UserConnection]:
    jid = f"ada@{private_server.users_domain}"
    password = private_server.add_account(jid)
    async with connect_user(
        jid, password, private_server.domain, LOOPBACK, private_server.client_port, tls=False
    ) as found:
        await answering(found)
        yield found


async def until_done(user: UserConnection, seconds: float = 90.0) -> an.JobView:
    """The job when it has ended."""
    async with asyncio.timeout(seconds):
        while True:
            answer = await user.ask(rq.ListJobs(jobs="last"))
            assert isinstance(answer, an.Jobs)
            if answer.jobs[0].state != "active":
                return answer.jobs[0]
            await asyncio.sleep(0.1)


async def test_a_manager_that_is_killed_loses_nothing_and_accepts_nothing_twice(
    pool: PoolOnPostgresql, user: UserConnection, server: PostgresqlServer
) -> None:
    await user.ask(rq.SubmitJob(spec=pool.spec()))
    await until(lambda: len(pool.left()) > TASKS // 4, 60.0)
    pool.manager.send_signal(signal.SIGKILL)
    pool.manager.wait()
    assert len(pool.left()) < TASKS, "it was killed in the middle"
    pool.starts()
    await answering(user)
    job = await until_done(user)
    assert (job.state, job.done) == ("done", TASKS)
    assert sorted(pool.left(), key=int) == [str(n) for n in range(TASKS)]
    [sums] = server.run("SELECT attempts, tasks FROM jobs", database=database_of(pool.conninfo))
    assert sums == (TASKS, TASKS), "each result was taken in once"
    pool.manager.send_signal(signal.SIGTERM)
    assert pool.manager.wait() == 0


async def test_a_database_that_is_killed_and_comes_back_is_gone_on_with(
    pool: PoolOnPostgresql, user: UserConnection, server: PostgresqlServer
) -> None:
    await user.ask(rq.SubmitJob(spec=pool.spec()))
    await until(lambda: len(pool.left()) > TASKS // 4, 60.0)
    server.stop()
    assert len(pool.left()) < TASKS, "it was stopped in the middle"
    server.start()
    job = await until_done(user)
    assert (job.state, job.done) == ("done", TASKS)
    assert sorted(pool.left(), key=int) == [str(n) for n in range(TASKS)]
    [sums] = server.run("SELECT attempts, tasks FROM jobs", database=database_of(pool.conninfo))
    assert sums == (TASKS, TASKS), "each result was taken in once"
    assert pool.manager.poll() is None, "it is the same manager"
