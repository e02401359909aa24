"""`submit --environment` runs tasks inside an environment of the pool, on an ordinary worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemons import Spawn
from environment_house import house_of
from puppet import run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import EnvironmentList
from kestrelctl.protocol.requests import ListEnvironments
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection

pytestmark = pytest.mark.timeout(120)

CLASSES = """
[environment.tiny]
kind = "venv"
recipe = "nothing.txt"

[environment.broken]
kind = "venv"
recipe = "broken.txt"

[environment.box]
kind = "podman"
image = "localhost/box"
tags = ["box"]
"""
WHERE = (
    "python",
    "-c",
    "import os, sys; print(sys.prefix == os.environ['VIRTUAL_ENV'], sys.prefix)",
)


@pytest.fixture
async def user(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> AsyncIterator[UserConnection]:
    """Of a pool whose worker isolates tasks as well as this machine can."""
    (tmp_path / "broken.txt").write_text("-r /nowhere/at/all.txt\n")
    async with house_of(private_server, spawn, tmp_path, CLASSES, worker_words=()) as house:
        yield house.user


async def tasks_of(user: UserConnection, spec: JobSpec) -> list[an.TaskView]:
    """How the tasks of a job have ended."""
    job = await run_job(user, spec)
    page = await user.ask(rq.ListTasks(job=str(job.job_id)))
    assert isinstance(page, an.Tasks)
    return page.tasks


async def test_tasks_run_inside_and_no_worker_is_started_for_them(
    user: UserConnection, tmp_path: Path
) -> None:
    spec = JobSpec(program=Program(argv=WHERE, environment=TaskEnvironment("tiny")), count=20)
    job = await run_job(user, spec)
    assert job.done == 20
    log = await user.ask(rq.Logs(job=str(job.job_id), task_id=19))
    assert isinstance(log, an.Log)
    [place] = (tmp_path / "worker" / "environments" / "venv" / "made").iterdir()
    assert log.data.decode().strip() == f"True {place}"
    answer = await user.ask(ListEnvironments())
    assert isinstance(answer, EnvironmentList)
    assert answer.environments == []


async def test_a_recipe_that_cannot_be_made_fails_the_task_with_what_was_said(
    user: UserConnection,
) -> None:
    spec = JobSpec(program=Program(argv=("true",), environment=TaskEnvironment("broken")))
    [task] = await tasks_of(user, spec)
    assert task.reason.startswith("no-environment: broken:")
    assert "/nowhere/at/all.txt" in task.reason


async def test_names_that_nobody_can_run_inside_are_refused_at_once(user: UserConnection) -> None:
    with pytest.raises(NotFound, match="there is no environment huge"):
        await run_job(
            user, JobSpec(program=Program(argv=("true",), environment=TaskEnvironment("huge")))
        )
    with pytest.raises(UsageError, match="cannot run inside environment box") as refused:
        await run_job(
            user, JobSpec(program=Program(argv=("true",), environment=TaskEnvironment("box")))
        )
    assert refused.value.hint == "--requires box starts one"
