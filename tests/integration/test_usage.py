"""What tasks use, from real processes to the commands that show it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from daemons import Spawn, answering

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

#: Burns a processor in a child that it waits for and in itself, and holds 50 MB.
BURN = """
import os, time
held = b"x" * 50_000_000
if not os.fork():
    while time.process_time() < 1.0:
        pass
    os._exit(0)
os.wait()
while True:
    pass
"""


async def view_of(user: UserConnection, job_id: int) -> an.JobView:
    answer = await user.ask(rq.ListJobs(jobs=str(job_id), details=True))
    assert isinstance(answer, an.Jobs)
    return answer.jobs[0]


async def test_what_a_running_task_uses_is_known_while_it_runs_and_added_up_when_it_has_ended(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> None:
    server = private_server
    (tmp_path / "secret").write_text(server.secret)
    worker = f"w1@{server.workers_domain}"
    (tmp_path / "credentials").write_text(f"{worker} {server.add_account(worker)}\n")
    (tmp_path / "credentials").chmod(0o600)
    ada = f"ada@{server.users_domain}"
    password = server.add_account(ada)
    spawn(
        "manager", "run", "--domain", server.domain, "--secret-file", tmp_path / "secret",
        "--port", server.component_port, "--data-dir", tmp_path / "manager",
        "--usage-interval", "1s",
    )  # fmt: skip
    spawn(
        "worker", "run", "--pool", server.domain, "--credentials", tmp_path / "credentials",
        "--port", server.client_port, "--cpus", "1", "--no-tls", "--data-dir", tmp_path / "worker",
    )  # fmt: skip
    here = ("127.0.0.1", server.client_port)
    async with (
        asyncio.timeout(120),
        connect_user(ada, password, server.domain, *here, tls=False) as user,
    ):
        await answering(user)
        submitted = await user.ask(
            rq.SubmitJob(spec=JobSpec(program=Program(argv=("python3", "-c", BURN))))
        )
        assert isinstance(submitted, an.Submitted)
        job_id = submitted.job_id
        first = await _used(user, job_id, 0.0)
        later = await _used(user, job_id, first.wall_seconds + 1.5)
        assert first.cpu_seconds < later.cpu_seconds <= later.wall_seconds + 0.5
        assert later.memory_bytes > 50_000_000
        tasks = await user.ask(rq.ListTasks(job=str(job_id)))
        assert isinstance(tasks, an.Tasks)
        assert tasks.tasks[0].memory_bytes
        workers = await user.ask(rq.ListWorkers(names=["w1"]))
        assert isinstance(workers, an.Workers)
        assert workers.workers[0].runs[0].job_id == job_id
        await user.ask(rq.CancelJobs(jobs=str(job_id)))
        while (view := await view_of(user, job_id)).ended_at is None:
            await asyncio.sleep(0.1)
        assert view.running_use is None
        assert view.attempts == 1
        assert (view.cpu_seconds or 0.0) >= later.cpu_seconds - 0.1
        used = await user.ask(rq.UserUsage(since=0.0))
        assert isinstance(used, an.UsedByUsers)
        assert [(line.user, line.cpu_seconds) for line in used.users] == [(ada, view.cpu_seconds)]


async def _used(user: UserConnection, job_id: int, beyond_seconds: float) -> an.RunningUse:
    while True:
        use = (await view_of(user, job_id)).running_use
        if use is not None and use.wall_seconds > beyond_seconds:
            return use
        await asyncio.sleep(0.1)
