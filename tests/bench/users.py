"""A queue of many users beside that of one: `python tests/bench/users.py [tasks] [pairs]`.

Hands the same number of tasks to inline workers, in turn as one job of one user and as 1,000 jobs
of 100 users, all of them queued before the first begins. Prints tasks per second, from the release
of the first job to the end of the last, and the ratio of each pair.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from daemons import spawning
from servers import running

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

WORKERS = 917
USERS = 100
JOBS_OF_EACH = 10


async def rate(tasks: int, users: int, jobs_of_each: int) -> float:
    """Tasks per second of a pool of its own."""
    with tempfile.TemporaryDirectory(prefix="kestrel-") as name, spawning() as spawn:
        directory = Path(name)
        server = PrivateServer.create(directory / "xmpp")
        (directory / "secret").write_text(server.secret)
        lines = []
        for number in range(WORKERS):
            worker = f"w{number}@{server.workers_domain}"
            lines.append(f"{worker} {server.add_account(worker)}\n")
        (directory / "credentials").write_text("".join(lines))
        (directory / "credentials").chmod(0o600)
        names = [f"u{number}@{server.users_domain}" for number in range(users)]
        passwords = {name: server.add_account(name) for name in names}
        async with running(server), contextlib.AsyncExitStack() as stack:
            spawn(
                "manager", "run", "--domain", server.domain, "--data-dir", directory / "manager",
                "--secret-file", directory / "secret", "--port", server.component_port,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            connections = [
                await stack.enter_async_context(_connect(server, name, password))
                for name, password in passwords.items()
            ]
            of_each = tasks // (users * jobs_of_each)
            spec = JobSpec(
                program=Program(argv=("true",)), count=of_each, held=True, notify=Notify.NEVER
            )
            for user in connections:
                for _ in range(jobs_of_each):
                    assert isinstance(await user.ask(rq.SubmitJob(spec=spec)), an.Submitted)
            spawn(
                "worker", "run", "--pool", server.domain, "--data-dir", directory / "worker",
                "--credentials", directory / "credentials", "--port", server.client_port,
                "--no-tls", "--executor", "inline", "--cpus", "1", "--sessions", WORKERS,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            await _all_there(connections[0])
            began = time.monotonic()
            for user in connections:
                await user.ask(rq.ReleaseJobs(jobs="all"))
            await _until_done(connections[0])
            return tasks / (time.monotonic() - began)


def _connect(
    server: PrivateServer, name: str, password: str
) -> contextlib.AbstractAsyncContextManager[UserConnection]:
    here = ("127.0.0.1", server.client_port)
    return connect_user(name, password, server.domain, *here, tls=False)


async def _status(user: UserConnection) -> an.PoolSummary:
    answer = await user.ask(rq.PoolStatus())
    assert isinstance(answer, an.PoolSummary)
    return answer


async def _all_there(user: UserConnection) -> None:
    while sum((await _status(user)).workers.values()) < WORKERS:
        await asyncio.sleep(0.2)


async def _until_done(user: UserConnection) -> None:
    while (status := await _status(user)).tasks_waiting or status.tasks_running:
        await asyncio.sleep(0.1)


def main(tasks: int = 1_000_000, pairs: int = 3) -> None:
    ratios = []
    for number in range(pairs):
        of_one = many = 0.0
        for turn in range(2):
            if (turn + number) % 2:
                many = asyncio.run(rate(tasks, USERS, JOBS_OF_EACH))
            else:
                of_one = asyncio.run(rate(tasks, 1, 1))
        ratios.append(many / of_one)
        print(
            f"one job {of_one:,.0f}/s, {USERS * JOBS_OF_EACH:,} jobs of {USERS} users "
            f"{many:,.0f}/s: {ratios[-1]:.3f}",
            flush=True,
        )
    print(f"median {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
