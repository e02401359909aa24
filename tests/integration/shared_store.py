"""A pool whose managers share a store: a server, a database, and what tasks leave behind."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from daemons import Spawn, until
from postgresqlkit import PostgresqlServer, database_of, running_server

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user


class SharedPool:
    """A server that lets the newer of two components stay, a database, workers and managers."""

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
        self._server_process: asyncio.subprocess.Process | None = None

    def start_manager(
        self, name: str, *more: object, in_sqlite: bool = False
    ) -> subprocess.Popen[str]:
        server = self.server
        store = () if in_sqlite else ("--postgresql", self.conninfo)
        with (self._directory / f"{name}.log").open("a") as log:
            return self._spawn(
                "manager", "run", "--domain", server.domain, "--port", server.component_port,
                "--secret-file", self._directory / "secret", "--admin", self.jid,
                "--data-dir", self._directory / name, *store, *more, stderr=log,
            )  # fmt: skip

    def migrate(self, name: str) -> None:
        """Has the rows of a manager that has ended copied from SQLite to PostgreSQL."""
        words = ("--postgresql", self.conninfo, "--data-dir", self._directory / name)
        done = self._spawn("manager", "migrate", *words)
        _, said = done.communicate(timeout=60)
        assert done.returncode == 0, said

    def start_worker(self, name: str = "w1") -> None:
        jid = f"{name}@{self.server.workers_domain}"
        credentials = self._directory / f"{name}.credentials"
        credentials.write_text(f"{jid} {self.server.add_account(jid)}\n")
        credentials.chmod(0o600)
        self._spawn(
            "worker", "run", "--pool", self.server.domain, "--port", self.server.client_port,
            "--no-tls", "--credentials", credentials, "--data-dir", self._directory / name,
            "--cpus", "2", "--isolation", "plain", stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text()

    def left(self) -> list[str]:
        """The lines that tasks have left, one each."""
        return self.lines.read_text().split() if self.lines.exists() else []

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        return self.database.run(statement, database=database_of(self.conninfo))

    async def submit(self, user: UserConnection, tasks: int) -> None:
        """Submits tasks of which each leaves its number."""
        script = f"echo $KESTREL_TASK_ID >> {self.lines}; sleep 0.01"
        spec = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=tasks)
        await user.ask(rq.SubmitJob(spec=spec))

    async def goes_on(self) -> float:
        """How long it takes until as many tasks have begun as can be in nobody's hands now."""
        began = time.monotonic()
        before = len(self.left())
        handed_out = before + 2 * 64  # what the worker has already, and does without a manager
        await until(lambda: len(self.left()) > handed_out, 60.0)
        return time.monotonic() - began

    async def all_done_once(self, user: UserConnection, tasks: int, seconds: float) -> None:
        """Waits until all tasks are done; each ran once, and its result was taken in once."""
        async with asyncio.timeout(seconds):
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
        assert (answer.jobs[0].state, answer.jobs[0].done) == ("done", tasks)
        assert sorted(self.left(), key=int) == [str(n) for n in range(tasks)]
        assert self.sql("SELECT attempts, tasks FROM jobs") == [(tasks, tasks)]

    async def seen(self, user: UserConnection) -> list[tuple[bool, str]]:
        answer = await user.ask(rq.PoolStatus())
        assert isinstance(answer, an.PoolSummary)
        return [(each.leads, each.problem) for each in answer.managers]

    async def until_one_stands_by(self, user: UserConnection) -> None:
        async with asyncio.timeout(60.0):
            while await self.seen(user) != [(True, ""), (False, "")]:
                await asyncio.sleep(0.1)

    def connect(self) -> AbstractAsyncContextManager[UserConnection]:
        """Connects the admin."""
        return connect_user(
            self.jid, self.password, self.server.domain, LOOPBACK, self.server.client_port,
            tls=False,
        )  # fmt: skip

    async def start_server(self) -> None:
        self._server_process = await asyncio.create_subprocess_exec(*self.server.command())
        await self.server.wait_ready()

    async def end_server(self) -> None:
        if self._server_process is not None and self._server_process.returncode is None:
            self._server_process.kill()
            await self._server_process.wait()


@asynccontextmanager
async def shared_pool(spawn: Spawn, directory: Path) -> AsyncIterator[SharedPool]:
    """Its server and its database run; nothing else does yet."""
    server = PrivateServer.create(directory / "xmpp")
    file = server._configuration_file
    words = 'component_conflict_resolve = "kick_old"\n    component_secret ='
    file.write_text(file.read_text().replace("component_secret =", words))
    with running_server(fsync=True) as database:
        pool = SharedPool(server, database, spawn, directory)
        await pool.start_server()
        try:
            yield pool
        finally:
            await pool.end_server()
