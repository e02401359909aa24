"""Work that needs what no worker has starts an environment, runs there, and leaves nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemons import Spawn
from environment_house import House, house_of
from puppet import run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.requests import StartOneEnvironment, StopEnvironments
from kestrelctl.xmpp.prosody import PrivateServer

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


@pytest.fixture
async def house(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> AsyncIterator[House]:
    async with house_of(private_server, spawn, tmp_path, CLASSES) as found:
        yield found


async def test_work_that_needs_a_tag_starts_an_environment_and_it_goes_again(house: House) -> None:
    job = await run_job(
        house.user, JobSpec(program=Program(argv=WHERE), requires=("TINY",), count=3), seconds=60
    )
    assert (job.done, job.failed) == (3, 0)
    [there] = await house.there()
    assert there.host.startswith("w@")
    workers = await house.workers()
    inside, host = workers["env"], workers["w"]
    assert host.assets["cpus"] == 1.0, "it offers less meanwhile"
    assert inside.assets["memory"] == host.assets["memory"], "half of it each"
    assert inside.assets["disk"] == host.assets["disk"]
    async with asyncio.timeout(60):
        await house.none_is_left()
        await house.no_account_is_left()
        while (await house.host()).assets["cpus"] != 2.0:
            await asyncio.sleep(0.05)


async def test_tasks_that_want_memory_are_reason_enough(house: House) -> None:
    """The class says nothing of memory, so an environment has a part of its host's."""
    wants = {"cpus": 1.0, "memory": float(64 << 20), "disk": float(1 << 20)}
    job = await run_job(
        house.user, JobSpec(program=Program(argv=WHERE), requires=("TINY",), request=wants)
    )
    assert (job.done, job.failed) == (1, 0)


async def test_who_waits_for_an_environment_is_told_so(house: House) -> None:
    for tags, classes in ((("TINY",), ["tiny"]), (("TINY", "OTHER"), [])):
        submitted = await house.user.ask(
            rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)), requires=tags))
        )
        assert isinstance(submitted, an.Submitted)
        why = await house.user.ask(rq.ExplainJob(job=str(submitted.job_id)))
        assert isinstance(why, an.JobExplanation)
        assert (why.ever, why.environments) == (False, classes)


async def test_nothing_is_started_for_work_that_could_not_run_there(house: House) -> None:
    spec = JobSpec(program=Program(argv=("true",)), requires=("TINY", "OTHER"))
    await house.user.ask(rq.SubmitJob(spec=spec))
    large = JobSpec(program=Program(argv=("true",)), requires=("TINY",), request={"cpus": 64.0})
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
    async with asyncio.timeout(60):
        await house.none_is_left()


async def test_a_manager_that_dies_starts_none_twice(house: House) -> None:
    spec = JobSpec(program=Program(argv=("sleep", "3600")), requires=("TINY",))
    answer = await house.user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(answer, an.Submitted)
    async with asyncio.timeout(60):
        before = await house.one_is("ready")
        house.kill_manager()
        house.manager = house.start_manager()
        while not (there := await house.there()):
            await asyncio.sleep(0.05)
    assert [each.number for each in there] == [before.number]
    await asyncio.sleep(3)
    assert [each.number for each in await house.there()] == [before.number]
    await house.user.ask(rq.CancelJobs(jobs=str(answer.job_id)))
    async with asyncio.timeout(60):
        await house.none_is_left()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_another_host_serves_what_waits_if_the_one_that_starts_an_environment_leaves(
    house: House, how: signal.Signals
) -> None:
    house.add_account("v")
    hosts = {"w": house.worker, "v": house.start_worker("v")}
    async with asyncio.timeout(120):
        while len((await house.class_of("tiny")).hosts) < 2:
            await asyncio.sleep(0.05)
        spec = JobSpec(program=Program(argv=WHERE), requires=("TINY",))
        await house.user.ask(rq.SubmitJob(spec=spec, watch=True))
        first = (await house.one_is("starting")).host.partition("@")[0]
        if how is signal.SIGKILL:
            house.kill_worker(hosts[first])
        else:
            hosts[first].send_signal(how)
        ended = await anext(aiter(house.user.pushed()))
        assert (ended.job.done, ended.job.failed, ended.job.lost) == (1, 0, 0)
        while hosts[first].poll() is None:
            await asyncio.sleep(0.05)
        hosts[first] = house.start_worker(first)
        house.worker = hosts["w"]
        while len((await house.class_of("tiny")).hosts) < 2:
            await asyncio.sleep(0.05)
        await house.none_is_left()
        await house.no_account_is_left()


async def test_a_worker_that_dies_leaves_nothing_behind(house: House) -> None:
    spec = JobSpec(program=Program(argv=("sleep", "1000")), requires=("TINY",))
    submitted = await house.user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(submitted, an.Submitted)
    async with asyncio.timeout(60):
        await house.one_is("ready")
        await house.user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))
        house.kill_worker()
        house.worker = house.start_worker()
        await house.none_is_left()
