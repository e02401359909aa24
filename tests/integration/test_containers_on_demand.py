"""Work that needs what no worker has starts a container, runs there, and leaves nothing."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from daemons import Spawn
from environment_house import House, house_of
from podman_apart import podman_apart
from puppet import run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer

pytestmark = pytest.mark.timeout(240)

CHECKOUT = Path(__file__).parents[2]
IMAGE = "localhost/kestrel-on-demand-test:1"
CLASSES = f"""
[environment.box]
kind = "podman"
image = "{IMAGE}"
tags = ["box"]
resources = {{ cpus = 1 }}
idle_seconds = 3
[environment.ghost]
kind = "podman"
image = "localhost/kestrel-no-such-image:1"
tags = ["ghost"]
resources = {{ cpus = 1 }}
"""
#: Says in whose tree it runs, and on which machine.
WHERE = ("sh", "-c", "cat /etc/os-release /proc/sys/kernel/hostname")
#: Of the host's, what a worker consists of.
MOUNTED = {"/usr", str(CHECKOUT), sys.prefix, sys.base_prefix}


def tree(place: Path) -> Path:
    """An image's: nothing but a shell and kestrelctl, which are the host's by mounts."""
    for directory in ("bin", "dev", "etc", "proc", "run", "sys", "tmp", "usr", "var/tmp"):
        (place / directory).mkdir(parents=True)
    for name in ("lib", "lib64"):
        (place / name).symlink_to(f"usr/{name}")
    (place / "bin/sh").symlink_to("/usr/bin/sh")
    (place / "etc/os-release").write_text("ID=kestrel\n")
    (place / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    program = place / "bin/kestrelctl"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m kestrelctl "$@"\n')
    program.chmod(0o755)
    return place


def mounts() -> list[str]:
    """Of what a worker consists of, as `--volume` takes them."""
    return [
        f"{place}:{place}:ro"
        for place in sorted(MOUNTED)
        if not any(Path(place).is_relative_to(other) for other in MOUNTED - {place})
    ]


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    if os.geteuid() != 0 or not (shutil.which("podman") and shutil.which("runc")):
        pytest.skip("podman and runc are wanted, as root")
    with podman_apart(tmp_path, tree(tmp_path / "tree"), IMAGE, mounts()) as before:
        yield before


@pytest.fixture
async def house(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path, podman: tuple[str, ...]
) -> AsyncIterator[House]:
    how = {"before": podman, "kinds": ("podman",), "worker_words": ()}
    async with house_of(private_server, spawn, tmp_path, CLASSES, **how) as found:
        yield found


def containers(before: tuple[str, ...]) -> list[str]:
    """Names of those that there are."""
    asked = (*before, "podman", "ps", "--all", "--format", "{{.Names}}")
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split()


async def test_a_container_comes_for_the_tasks_that_need_it_and_goes_after_them(
    house: House, podman: tuple[str, ...]
) -> None:
    job = await run_job(
        house.user, JobSpec(program=Program(argv=WHERE), requires=("BOX",), count=3), seconds=120
    )
    assert (job.done, job.failed) == (3, 0)
    log = await house.user.ask(rq.Logs(job=str(job.job_id), task_id=2))
    assert isinstance(log, an.Log)
    [container] = containers(podman)
    assert log.data.decode().split() == ["ID=kestrel", container]
    assert (await house.host()).assets["cpus"] == 1.0, "its host offers less meanwhile"
    async with asyncio.timeout(60):
        await house.none_is_left()
        await house.no_account_is_left()
        while containers(podman) or (await house.host()).assets["cpus"] != 2.0:
            await asyncio.sleep(0.1)


async def test_an_image_that_is_not_there_is_said_and_tried_again_and_others_are_started(
    house: House, podman: tuple[str, ...]
) -> None:
    spec = JobSpec(program=Program(argv=WHERE), requires=("GHOST",))
    ghost = await house.user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(ghost, an.Submitted)
    job = await run_job(
        house.user, JobSpec(program=Program(argv=WHERE), requires=("BOX",), count=3), seconds=120
    )
    assert (job.done, job.failed) == (3, 0)
    async with asyncio.timeout(120):
        while not (failures := (await house.class_of("ghost")).failures):
            await asyncio.sleep(0.1)
        why = await house.user.ask(rq.ExplainJob(job=str(ghost.job_id)))
        assert isinstance(why, an.JobExplanation)
        assert (why.environments, why.next_start_seconds is None) == (["ghost"], False)
        assert "level=warning" not in failures[0].why
        assert "kestrel-no-such-image" in failures[0].why
        assert failures[0].next_try_at > failures[0].at
        while (await house.class_of("ghost")).failures[0].times < 2:
            await asyncio.sleep(0.1)
        await house.user.ask(rq.CancelJobs(jobs=str(ghost.job_id)))
        await house.none_is_left()
        await house.no_account_is_left()
        while containers(podman) or (await house.host()).assets["cpus"] != 2.0:
            await asyncio.sleep(0.1)
    assert not list((house.directory / "worker").glob("environments/podman/running/*"))


async def test_a_container_goes_with_its_host_and_one_that_was_left_is_removed(
    house: House, podman: tuple[str, ...]
) -> None:
    spec = JobSpec(program=Program(argv=("sleep", "1000")), requires=("BOX",))
    submitted = await house.user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(submitted, an.Submitted)
    async with asyncio.timeout(120):
        await house.one_is("ready")
        await house.user.ask(rq.CancelJobs(jobs=str(submitted.job_id)))
        house.kill_worker()
        assert len(containers(podman)) == 1
        house.worker = house.start_worker()
        await house.none_is_left()
        await house.no_account_is_left()
        while containers(podman):
            await asyncio.sleep(0.1)
