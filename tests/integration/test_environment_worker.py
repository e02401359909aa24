"""An environment boots a worker that joins a real pool with a one-time token, works, and leaves."""

from __future__ import annotations

import asyncio
import zipfile
from pathlib import Path

import pytest
from puppet import run_job

from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.environments.worker_command import worker_command
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers, requests
from kestrelctl.protocol.workers import Token
from kestrelctl.worker.environments.venv_driver import HOSTS_PROGRAM, VenvDriver
from kestrelctl.xmpp.user import UserConnection

pytestmark = pytest.mark.timeout(180)

_METADATA = "tiny-1.dist-info"


def tiny_wheel(directory: Path) -> Path:
    """A package with nothing but its name, which nobody else has."""
    wheel = directory / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        archive.writestr(f"{_METADATA}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        archive.writestr(
            f"{_METADATA}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{_METADATA}/RECORD", "")
    return wheel


async def workers_called(user: UserConnection, name: str) -> list[answers.WorkerView]:
    found = await user.ask(requests.ListWorkers(names=[name]))
    assert isinstance(found, answers.Workers)
    return found.workers


async def test_a_virtual_environment_joins_runs_what_needs_its_tag_and_leaves(
    local_pool: PoolState, user: UserConnection, admin: UserConnection, tmp_path: Path
) -> None:
    recipe = tmp_path / "tiny.txt"
    recipe.write_text(f"--no-index\n{tiny_wheel(tmp_path)}\n")
    wanted = EnvironmentClass(
        name="tiny",
        kind="venv",
        recipe=str(recipe),
        tags=("has-tiny",),
        resources=EnvironmentResources(cpus=1),
    )
    driver = VenvDriver(tmp_path / "environments")
    prepared = await driver.prepare(wanted)
    name = EnvironmentOwner(local_pool.domain, "host").name(1)

    enrolled = await admin.ask(requests.EnrollWorker(name="tiny-1"))
    assert isinstance(enrolled, answers.Enrolled)
    token = Token(
        host=local_pool.host, port=local_pool.port, tls=False, pool=local_pool.domain,
        jid=enrolled.jid, password=enrolled.password,
    ).encode()  # fmt: skip
    command = worker_command(wanted, "tiny-1", program=HOSTS_PROGRAM)
    await driver.start(name, wanted, prepared, command, token)
    try:
        imports = ("python", "-c", "import sys, tiny; print(sys.prefix)")
        job = await run_job(user, JobSpec(program=Program(argv=imports), requires=("HAS-TINY",)))
        assert (job.done, job.failed) == (1, 0)
        [worker] = await workers_called(user, "tiny-1")
        assert worker.assets["cpus"] == 1.0
        assert "HAS-TINY" in worker.tags
        found = (await driver.status())[name]
        assert found.running, found.said
    finally:
        await driver.stop(name)
    async with asyncio.timeout(30):
        while any(each.state != "offline" for each in await workers_called(user, "tiny-1")):
            await asyncio.sleep(0.05)
    assert await driver.status() == {}
