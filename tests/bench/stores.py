"""Dispatch with the store in PostgreSQL over SQLite's: `stores.py [TASKS [ROUNDS]]`.

One server; in turn a manager on SQLite and one on a PostgreSQL of this machine that waits for its
disk, each with one worker process of many sessions that runs tasks without processes.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from daemons import Spawn, answering, spawning
from postgresqlkit import PostgresqlServer, running_server

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol.requests import SubmitJob
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import connect_user

SESSIONS = 200
STOP_SECONDS = 30


class Bench:
    """A server, and a database for each manager on PostgreSQL."""

    def __init__(
        self, server: PrivateServer, database: PostgresqlServer, spawn: Spawn, directory: Path
    ) -> None:
        self._server = server
        self._database = database
        self._spawn = spawn
        self._directory = directory
        (directory / "secret").write_text(server.secret)
        names = [f"w{n}@{server.workers_domain}" for n in range(SESSIONS)]
        credentials = directory / "credentials"
        credentials.touch(mode=0o600)
        credentials.write_text("".join(f"{jid} {server.add_account(jid)}\n" for jid in names))
        self._jid = f"ada@{server.users_domain}"
        self._password = server.add_account(self._jid)
        self._runs = 0

    async def rate(self, tasks: int, *, postgresql: bool) -> float:
        """Tasks per second of one job on a pool that is made for it."""
        self._runs += 1
        place = self._directory / str(self._runs)
        more = ["--postgresql", self._database.new_database()] if postgresql else []
        server = self._server
        manager = self._spawn(
            "manager", "run", "--domain", server.domain, "--port", server.component_port,
            "--secret-file", self._directory / "secret", "--data-dir", place / "manager", *more,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        worker = self._spawn(
            "worker", "run", "--pool", server.domain, "--port", server.client_port, "--no-tls",
            "--credentials", self._directory / "credentials", "--sessions", SESSIONS,
            "--executor", "inline", "--cpus", "1", "--data-dir", place / "worker",
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        async with connect_user(
            self._jid, self._password, server.domain, LOOPBACK, server.client_port, tls=False
        ) as user:
            await answering(user)
            for count in (SESSIONS, tasks):  # the first one waits for the workers
                began = time.perf_counter()
                spec = JobSpec(program=Program(argv=("true",)), count=count)
                await user.ask(SubmitJob(spec=spec, watch=True))
                await anext(aiter(user.pushed()))
                took_seconds = time.perf_counter() - began
        for process in (worker, manager):
            process.terminate()
            process.wait(STOP_SECONDS)
        return tasks / took_seconds


async def measure(tasks: int, rounds: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="kestrel-stores-") as directory,
        running_server(fsync=True) as database,
        spawning() as spawn,
    ):
        server = PrivateServer.create(Path(directory) / "xmpp")
        process = await asyncio.create_subprocess_exec(*server.command())
        await server.wait_ready()
        bench = Bench(server, database, spawn, Path(directory))
        ratios = []
        for _ in range(rounds):
            sqlite = await bench.rate(tasks, postgresql=False)
            postgresql = await bench.rate(tasks, postgresql=True)
            ratios.append(postgresql / sqlite)
            print(f"SQLite {sqlite:8,.0f}/s  PostgreSQL {postgresql:8,.0f}/s  {ratios[-1]:.2f}")
        print(f"PostgreSQL over SQLite: {statistics.median(ratios):.2f}")
        process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(measure(*map(int, [*sys.argv[1:], *("30000", "5")[len(sys.argv) - 1 :]])))
