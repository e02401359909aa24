"""A host comes back whose manager was replaced: a real server, and two managers over one worker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from daemons import Spawn, until

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import SteppedBack
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.store.backup import back_up, restore
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

TASKS = 4


class Pool:
    """A server that can be ended and started, a worker on it, and any number of managers."""

    def __init__(self, server: PrivateServer, spawn: Spawn, directory: Path) -> None:
        self.server = server
        self._spawn = spawn
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        (directory / "secret").write_text(server.secret)
        self.jid = f"ada@{server.users_domain}"
        self.password = server.add_account(self.jid)

    async def start_server(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self.server.command())
        await self.server.wait_ready()

    async def end_server(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    def log(self, host: str) -> str:
        file = self._directory / f"{host}.log"
        return file.read_text() if file.exists() else ""

    def start_manager(self, host: str) -> subprocess.Popen[str]:
        with (self._directory / f"{host}.log").open("a") as log:
            return self._spawn(
                "manager", "run", "--domain", self.server.domain, "--secret-file",
                self._directory / "secret", "--port", self.server.component_port,
                "--data-dir", self._directory / host, stderr=log,
            )  # fmt: skip

    def start_worker(self) -> subprocess.Popen[str]:
        jid = f"w1@{self.server.workers_domain}"
        file = self._directory / "credentials"
        file.write_text(f"{jid} {self.server.add_account(jid)}\n")
        file.chmod(0o600)
        with (self._directory / "worker.log").open("a") as log:
            return self._spawn(
                "worker", "run", "--pool", self.server.domain, "--port", self.server.client_port,
                "--no-tls", "--credentials", file, "--data-dir", self._directory / "worker",
                "--cpus", TASKS, "--isolation", "plain", stderr=log,
            )  # fmt: skip

    async def submitted(self, user: UserConnection, argv: tuple[str, ...], n: int = 1) -> int:
        answer = await user.ask(rq.SubmitJob(spec=JobSpec(program=Program(argv=argv), count=n)))
        assert isinstance(answer, an.Submitted)
        return answer.job_id

    def connect(self) -> AbstractAsyncContextManager[UserConnection]:
        return connect_user(
            self.jid, self.password, self.server.domain, LOOPBACK, self.server.client_port,
            tls=False,
        )  # fmt: skip


@pytest.fixture
async def pool(spawn: Spawn, tmp_path: Path) -> AsyncIterator[Pool]:
    """Its server runs."""
    found = Pool(PrivateServer.create(tmp_path / "xmpp"), spawn, tmp_path)
    await found.start_server()
    yield found
    await found.end_server()


async def logged(pool: Pool, name: str, words: str, times: int = 1) -> None:
    await until(lambda: pool.log(name).count(words) >= times, 60)


async def test_the_older_of_two_managers_steps_back_and_what_runs_goes_on(
    pool: Pool, tmp_path: Path
) -> None:
    ran, go = tmp_path / "ran", tmp_path / "go"
    first = pool.start_manager("old")
    await logged(pool, "old", "connected to the server")
    pool.start_worker()
    given: list[int] = []
    async with pool.connect() as user:
        given.append(await pool.submitted(user, ("true",)))
        back_up(tmp_path / "old", tmp_path / "backup")
        given += [await pool.submitted(user, ("true",)) for _ in range(2)]
        first.kill()
        first.wait()

        # On another host a manager is installed, and has started before the backup comes.
        fresh = pool.start_manager("new")
        await logged(pool, "new", "connected to the server")
        fresh.send_signal(signal.SIGTERM)
        assert fresh.wait(30) == 0
        restore(tmp_path / "backup", tmp_path / "new", tmp_path / "aside")
        right = pool.start_manager("new")
        await logged(pool, "new", "connected to the server", 2)
        script = f"echo x >>{ran}; until [ -e {go} ]; do sleep 0.1; done"
        job = await pool.submitted(user, ("sh", "-c", script), TASKS)
        given.append(job)
        await until(lambda: ran.exists() and ran.read_text() == "x\n" * TASKS, 30)

    # The old host boots. The server has the right one, and says so.
    back = pool.start_manager("old")
    await logged(pool, "old", "<conflict/> (Component already connected)")

    # The server restarts, and the old one is there before the right one.
    right.send_signal(signal.SIGSTOP)
    await pool.end_server()
    await pool.start_server()
    assert back.wait(60) == SteppedBack.exit_status
    right.send_signal(signal.SIGCONT)
    await logged(pool, "new", "connected to the server", 3)
    assert "the pool has gone on with another manager" in pool.log("old")
    assert "manager restore" in pool.log("old"), "what to do next"

    async with pool.connect() as user:
        given.append(await pool.submitted(user, ("true",)))
        go.touch()
        await user.ask(rq.Watch(jobs=str(job)))
        async with asyncio.timeout(60):
            ended = await anext(user.pushed())
    assert (ended.job.job_id, ended.job.done, ended.job.lost) == (job, TASKS, 0)
    assert len(set(given)) == len(given), "no number was given twice"
    assert ran.read_text() == "x\n" * TASKS, "no task was run again"


async def test_after_all_have_lost_their_power_the_older_manager_is_told_too(
    pool: Pool, tmp_path: Path
) -> None:
    """It is back before the right one, and so is the worker: a new process, which remembers."""
    old = pool.start_manager("old")
    await logged(pool, "old", "connected to the server")
    back_up(tmp_path / "old", tmp_path / "backup")
    old.kill()
    old.wait()
    restore(tmp_path / "backup", tmp_path / "new", tmp_path / "aside")
    right = pool.start_manager("new")
    await logged(pool, "new", "connected to the server")
    worker = pool.start_worker()
    async with pool.connect() as user:
        await user.ask(rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",))), watch=True))
        async with asyncio.timeout(60):
            await anext(user.pushed())
    for process in (right, worker):
        process.kill()
        process.wait()
    await pool.end_server()

    await pool.start_server()
    old = pool.start_manager("old")
    await logged(pool, "old", "connected to the server", 2)
    pool.start_worker()
    assert old.wait(60) == SteppedBack.exit_status
