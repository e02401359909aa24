"""A manager with a limit on what it sends, at a real server: slower, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

from daemons import Spawn, answering
from puppet import run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import connect_user

#: Messages a second.
MOST = 20


async def test_tasks_end_and_no_more_messages_go_than_are_allowed(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> None:
    server = private_server
    (tmp_path / "secret").write_text(server.secret)
    worker = f"w@{server.workers_domain}"
    (tmp_path / "w").write_text(f"{worker} {server.add_account(worker)}\n")
    (tmp_path / "w").chmod(0o600)
    ada = f"ada@{server.users_domain}"
    password = server.add_account(ada)
    spawn(
        "manager", "run", "--domain", server.domain, "--secret-file", tmp_path / "secret",
        "--port", server.component_port, "--data-dir", tmp_path / "manager",
        "--admin", ada, "--send-limit", f"all={MOST}",
    )  # fmt: skip
    spawn(
        "worker", "run", "--pool", server.domain, "--credentials", tmp_path / "w",
        "--port", server.client_port, "--cpus", "2", "--no-tls", "--data-dir", tmp_path / "worker",
    )  # fmt: skip
    here = ("127.0.0.1", server.client_port)
    loop = asyncio.get_running_loop()
    async with connect_user(ada, password, server.domain, *here, tls=False) as user:
        await answering(user)
        began = loop.time()
        for _ in range(3):
            job = await run_job(
                user, JobSpec(program=Program(argv=("true",)), count=20), seconds=60
            )
            assert (job.done, job.failed) == (20, 0)
        # Many questions at once, each answered in its time.
        answers = await asyncio.gather(*(user.ask(rq.PoolTraffic()) for _ in range(60)))
        passed_seconds = loop.time() - began
        found = answers[-1]
        assert isinstance(found, an.Traffic)
        sent = sum(stanzas for _, way, stanzas, _ in found.messages if way == "out")
    assert 60 < sent < MOST * (passed_seconds + 1)
