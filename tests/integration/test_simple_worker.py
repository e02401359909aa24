"""A worker written by hand, without anything of Kestrel, in a real pool with others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from daemons import until
from puppet import Puppet

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection

SCRIPT = Path(__file__).with_name("simple_worker.py")


@contextlib.asynccontextmanager
async def simple_worker(
    pool: PoolState, user: UserConnection, directory: Path
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The script at work, once the pool knows it."""
    server = PrivateServer(
        Path(pool.password_file).parent / "server", pool.domain, pool.port, 0, ""
    )
    jid = f"hand@{server.workers_domain}"
    password = directory / "password"
    password.write_text(server.add_account(jid))
    words = [sys.executable, "-I", SCRIPT, jid, password, pool.domain, pool.host, pool.port]
    process = await asyncio.create_subprocess_exec(*map(str, words))
    try:
        await until_it_is(user, "idle", process)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until_it_is(
    user: UserConnection, state: str, process: asyncio.subprocess.Process
) -> an.WorkerView:
    async with asyncio.timeout(60):
        while True:
            found = await user.ask(rq.ListWorkers(names=["hand@"]))
            assert isinstance(found, an.Workers)
            # Sessions of earlier tests may be listed as offline.
            for view in found.workers:
                if view.state == state:
                    return view
            assert process.returncode is None or state == "offline"
            await asyncio.sleep(0.1)


async def until_it_ended(user: UserConnection, job_id: int) -> an.JobView:
    while True:
        found = await user.ask(rq.ListJobs(jobs=str(job_id)))
        assert isinstance(found, an.Jobs)
        if found.jobs[0].ended_at is not None:
            return found.jobs[0]
        await asyncio.sleep(0.1)


async def tasks_of(user: UserConnection, job_id: int) -> list[an.TaskView]:
    found = await user.ask(rq.ListTasks(job=str(job_id)))
    assert isinstance(found, an.Tasks)
    return found.tasks


async def test_it_joins_runs_tasks_reports_and_dies(
    local_pool: PoolState, user: UserConnection, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text('echo "task $1 of $KESTREL_JOB_ID: $PART"; exit $(($1 == 13))\n')
    async with (
        simple_worker(local_pool, user, tmp_path) as process,
        Puppet(local_pool, "by-hand", "users") as person,
    ):
        view = await until_it_is(user, "idle", process)
        assert {"FOO", "BAR", "LINUX"} <= {tag.upper() for tag in view.tags}
        assert (view.assets, view.version) == ({"cpus": 2.0, "memory": 1024 << 20}, "profile")

        # Twenty tasks, one of which fails, as a person types them.
        job = {
            "type": "job", "command": f"PART=x sh {tmp_path}/run", "queue": 20,
            "cleanup": f"echo cleaned >> {tmp_path}/log", "requires": ["FOO"],
        }  # fmt: skip
        person.session.send_body(json.dumps(job), f"jobs@{local_pool.domain}")
        submitted = json.loads(await asyncio.wait_for(person.chat.get(), 10))
        assert (submitted["type"], submitted["tasks"]) == ("submitted", 20)
        ended = await until_it_ended(user, submitted["job_id"])
        assert (ended.state, ended.done, ended.failed) == ("failed", 19, 1)
        cleaned = (tmp_path / "log").read_text().splitlines()
        assert sorted(cleaned) == sorted(f"cleaned {index}" for index in range(20))

        # What it runs when it dies goes to others.
        flag = tmp_path / "flag"
        script = f"echo x >> {tmp_path}/begun; until test -e {flag}; do sleep 0.05; done"
        spec = JobSpec(program=Program(argv=("sh", "-c", script)), count=4, requires=("LINUX",))
        submitted_too = await user.ask(rq.SubmitJob(spec=spec))
        assert isinstance(submitted_too, an.Submitted)
        job_id = submitted_too.job_id
        begun = tmp_path / "begun"
        await until(lambda: begun.exists() and len(begun.read_text().split()) == 4)
        assert (await until_it_is(user, "busy", process)).running == 2
        process.kill()
        await until_it_is(user, "offline", process)
        flag.touch()
        async with asyncio.timeout(60):
            while any(task.state != "done" for task in await tasks_of(user, job_id)):
                await asyncio.sleep(0.1)
        tasks = await tasks_of(user, job_id)
        assert len(tasks) == 4
        assert not any(task.worker.startswith("hand@") for task in tasks)
        assert len(begun.read_text().split()) == 6, "two of them twice"


async def test_what_it_is_told_to_cancel_it_cancels(
    local_pool: PoolState, user: UserConnection, tmp_path: Path
) -> None:
    async with simple_worker(local_pool, user, tmp_path) as process:
        spec = JobSpec(program=Program(argv=("sleep", "600")), requires=("FOO",))
        submitted = await user.ask(rq.SubmitJob(spec=spec))
        assert isinstance(submitted, an.Submitted)
        await until_it_is(user, "busy", process)
        await user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))
        await until_it_is(user, "idle", process)
        [task] = await tasks_of(user, submitted.job_id)
        assert task.state == "cancelled"
