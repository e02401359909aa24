"""A pool of real processes whose store is in PostgreSQL."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from daemons import Spawn

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

TASKS = 1_000
WORKERS = 2


class PoolOnPostgresql:
    """A manager and workers, each a process."""

    def __init__(self, xmpp: PrivateServer, conninfo: str, spawn: Spawn, directory: Path) -> None:
        self._xmpp = xmpp
        self._spawn = spawn
        self._directory = directory
        self.conninfo = conninfo
        self.lines = directory / "lines"
        self.log = directory / "manager.log"
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
        with self.log.open("a") as log:
            self.manager = self._spawn(
                "manager", "run", "--domain", xmpp.domain, "--host", LOOPBACK,
                "--port", xmpp.component_port, "--secret-file", self._directory / "secret",
                "--data-dir", self._directory / "manager", "--postgresql", self.conninfo,
                "--worker-host", xmpp.workers_domain, "--user-host", xmpp.users_domain,
                stderr=log,
            )  # fmt: skip
        return self.manager

    def spec(self) -> JobSpec:
        """Tasks of which each leaves a line."""
        script = f"echo $KESTREL_TASK_ID >> {self.lines}"
        return JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=TASKS)

    def left(self) -> list[str]:
        """The lines that tasks have left."""
        return self.lines.read_text().split() if self.lines.exists() else []


@asynccontextmanager
async def ada(server: PrivateServer) -> AsyncIterator[UserConnection]:
    """Connects a user, whose account is made."""
    jid = f"ada@{server.users_domain}"
    password = server.add_account(jid)
    async with connect_user(
        jid, password, server.domain, LOOPBACK, server.client_port, tls=False
    ) as found:
        yield found


async def until_done(user: UserConnection, seconds: float = 90.0, jobs: str = "last") -> an.JobView:
    """The job when it has ended."""
    async with asyncio.timeout(seconds):
        while True:
            answer = await user.ask(rq.ListJobs(jobs=jobs))
            assert isinstance(answer, an.Jobs)
            if answer.jobs[0].state != "active":
                return answer.jobs[0]
            await asyncio.sleep(0.1)


async def status(user: UserConnection) -> an.PoolSummary:
    answer = await user.ask(rq.PoolStatus())
    assert isinstance(answer, an.PoolSummary)
    return answer


async def until_told(user: UserConnection, error: str) -> None:
    """Waits until the pool says of its store that, or nothing."""
    async with asyncio.timeout(60.0):
        while True:
            told = (await status(user)).store_error
            if (error in told) if error else not told:
                return
            await asyncio.sleep(0.1)
