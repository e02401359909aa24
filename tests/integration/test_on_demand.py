"""Work that needs what no worker has starts an environment, runs there, and leaves nothing."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from daemons import Spawn
from puppet import run_job

from kestrelctl.core.model.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.environment_answers import EnvironmentList, EnvironmentView
from kestrelctl.protocol.environment_requests import (
    ListEnvironments,
    StartOneEnvironment,
    StopEnvironments,
)
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

pytestmark = pytest.mark.timeout(180)

CLASSES = """
[environment.tiny]
kind = "venv"
recipe = "nothing.txt"
tags = ["tiny"]
resources = { cpus = 1 }
maximum = 1
idle_seconds = 3
"""
WHERE = ("python", "-c", "import sys; print(sys.prefix)")


@dataclass
class House:
    """A server, a manager with a class of environments, and a worker that makes some."""

    user: UserConnection
    start_manager: Callable[[], subprocess.Popen[str]]
    start_worker: Callable[[], subprocess.Popen[str]]
    manager: subprocess.Popen[str]
    worker: subprocess.Popen[str]
    directory: Path

    async def listed(self) -> EnvironmentList:
        answer = await self.user.ask(ListEnvironments())
        assert isinstance(answer, EnvironmentList)
        return answer

    async def there(self) -> list[EnvironmentView]:
        return (await self.listed()).environments

    async def one_is(self, phase: str) -> EnvironmentView:
        while True:
            found = await self.there()
            if found and found[0].phase == phase:
                return found[0]
            await asyncio.sleep(0.05)

    async def none_is_left(self) -> None:
        while await self.there() or self.processes():
            await asyncio.sleep(0.05)

    async def host(self) -> an.WorkerView:
        answer = await self.user.ask(rq.ListWorkers(names=["w"]))
        assert isinstance(answer, an.Workers)
        return answer.workers[0]

    def processes(self) -> list[psutil.Process]:
        """What runs in environments."""
        mark = str(self.directory / "worker" / "environments")
        return [
            process
            for process in psutil.process_iter(["environ"])
            if mark in (process.info["environ"] or {}).get("VIRTUAL_ENV", "")
        ]


@pytest.fixture
async def house(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> AsyncIterator[House]:
    server = private_server
    (tmp_path / "secret").write_text(server.secret)
    (tmp_path / "classes.toml").write_text(CLASSES)
    (tmp_path / "nothing.txt").write_text("# nothing\n")
    worker = f"w@{server.workers_domain}"
    (tmp_path / "w").write_text(f"{worker} {server.add_account(worker)}\n")
    (tmp_path / "w").chmod(0o600)
    ada = f"ada@{server.users_domain}"
    password = server.add_account(ada)

    def start_manager() -> subprocess.Popen[str]:
        return spawn(
            "manager", "run", "--domain", server.domain, "--secret-file", tmp_path / "secret",
            "--port", server.component_port, "--data-dir", tmp_path / "manager",
            "--admin", ada, "--environments", tmp_path / "classes.toml",
        )  # fmt: skip

    def start_worker() -> subprocess.Popen[str]:
        return spawn(
            "worker", "run", "--pool", server.domain, "--credentials", tmp_path / "w",
            "--port", server.client_port, "--cpus", "2", "--no-tls", "--isolation", "plain",
            "--data-dir", tmp_path / "worker", "--environments", "venv",
        )  # fmt: skip

    here = ("127.0.0.1", server.client_port)
    async with connect_user(ada, password, server.domain, *here, tls=False) as user:
        manager, working = start_manager(), start_worker()
        found = House(user, start_manager, start_worker, manager, working, tmp_path)
        async with asyncio.timeout(30):
            while not (await found.listed()).classes[0].hosts:
                await asyncio.sleep(0.05)
        yield found


async def test_work_that_needs_a_tag_starts_an_environment_and_it_goes_again(house: House) -> None:
    job = await run_job(house.user, JobSpec(argv=WHERE, requires=("TINY",), count=3), seconds=60)
    assert (job.done, job.failed) == (3, 0)
    [there] = await house.there()
    assert there.host.startswith("w@")
    assert (await house.host()).assets["cpus"] == 1.0, "it offers less meanwhile"
    async with asyncio.timeout(30):
        await house.none_is_left()
        while (await house.host()).assets["cpus"] != 2.0:
            await asyncio.sleep(0.05)
    answer = await house.user.ask(rq.ListWorkers(names=["env-tiny-*"]))
    assert isinstance(answer, an.Failed) or not answer.workers, "its account has gone, too"


async def test_who_waits_for_an_environment_is_told_so(house: House) -> None:
    for tags, classes in ((("TINY",), ["tiny"]), (("TINY", "OTHER"), [])):
        submitted = await house.user.ask(rq.SubmitJob(spec=JobSpec(argv=("true",), requires=tags)))
        assert isinstance(submitted, an.Submitted)
        why = await house.user.ask(rq.ExplainJob(job=str(submitted.job_id)))
        assert isinstance(why, an.JobExplanation)
        assert (why.ever, why.environments) == (False, classes)


async def test_nothing_is_started_for_work_that_could_not_run_there(house: House) -> None:
    spec = JobSpec(argv=("true",), requires=("TINY", "OTHER"))
    await house.user.ask(rq.SubmitJob(spec=spec))
    large = JobSpec(argv=("true",), requires=("TINY",), request={"cpus": 64.0})
    await house.user.ask(rq.SubmitJob(spec=large))
    await asyncio.sleep(3)
    found = await house.listed()
    assert not found.environments
    assert found.classes[0].waiting == 0


async def test_an_admin_starts_one_and_it_stays_until_he_stops_it(house: House) -> None:
    done = await house.user.ask(StartOneEnvironment(of="tiny"))
    assert isinstance(done, an.Changed)
    async with asyncio.timeout(60):
        started = await house.one_is("ready")
    assert str(started.number) == done.what[0]
    assert started.asked_for
    await asyncio.sleep(4)
    assert await house.there(), "though it idles"
    await house.user.ask(StopEnvironments(numbers=[started.number]))
    async with asyncio.timeout(30):
        await house.none_is_left()


async def test_a_manager_that_dies_starts_none_twice(house: House) -> None:
    spec = JobSpec(argv=("sleep", "8"), requires=("TINY",))
    await house.user.ask(rq.SubmitJob(spec=spec))
    async with asyncio.timeout(60):
        before = await house.one_is("ready")
        house.manager.kill()
        house.manager.wait()
        house.manager = house.start_manager()
        while not (there := await house.there()):
            await asyncio.sleep(0.05)
    assert [each.number for each in there] == [before.number]
    await asyncio.sleep(3)
    assert [each.number for each in await house.there()] == [before.number]
    async with asyncio.timeout(60):
        await house.none_is_left()


async def test_a_worker_that_dies_leaves_nothing_behind(house: House) -> None:
    spec = JobSpec(argv=("sleep", "1000"), requires=("TINY",))
    submitted = await house.user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(submitted, an.Submitted)
    async with asyncio.timeout(60):
        await house.one_is("ready")
        await house.user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))
        for child in psutil.Process(house.worker.pid).children():
            child.kill()
        house.worker.wait()
        house.worker = house.start_worker()
        await house.none_is_left()
