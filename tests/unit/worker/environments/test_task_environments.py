"""Environments inside which tasks of a worker run are prepared once, and only when they can be."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.task_environments import EnvironmentRefused, TaskEnvironments

SCIENCE = TaskEnvironment("science", "venv", "numpy\n")


class Venvs:
    """A driver that prepares what the test lets it.

    Attributes:
        recipes: of what it was asked to prepare, in order.
        go_on: while it is not set, nothing gets ready.
        error: what preparing comes to; None if all goes well.
    """

    def __init__(self, directory: Path) -> None:
        self.recipes: list[str] = []
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.error: Exception | None = None
        self.place = directory / "made"
        self.place.mkdir()

    async def prepare(self, wanted: EnvironmentClass) -> str:
        self.recipes.append(Path(wanted.recipe).read_text() if wanted.recipe else "")
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return str(self.place)


class Machine:
    """A worker's environments."""

    def __init__(self, directory: Path) -> None:
        self.driver = Venvs(directory)
        self.environments = TaskEnvironments(directory / "recipes")
        self.environments.drivers = {"venv": self.driver}


@pytest.fixture
async def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_tasks_find_the_programs_of_their_environment_first(machine: Machine) -> None:
    found, _ = await machine.environments.inside(SCIENCE, {"PATH": "/usr/bin", "A": "b"})
    place = machine.driver.place
    assert found == {"PATH": f"{place}/bin:/usr/bin", "VIRTUAL_ENV": str(place), "A": "b"}
    assert machine.driver.recipes == ["numpy\n"]


async def test_what_is_prepared_is_prepared_once_for_all_tasks(machine: Machine) -> None:
    machine.driver.go_on.clear()
    both = [asyncio.ensure_future(machine.environments.inside(SCIENCE, {})) for _ in range(2)]
    await asyncio.sleep(0)
    machine.driver.go_on.set()
    await asyncio.gather(*both)
    await machine.environments.inside(SCIENCE, {})
    assert len(machine.driver.recipes) == 1
    await machine.environments.inside(TaskEnvironment("science", "venv", "scipy\n"), {})
    assert machine.driver.recipes == ["numpy\n", "scipy\n"], "another recipe is another one"


async def test_who_is_cancelled_leaves_others_what_they_wait_for(machine: Machine) -> None:
    machine.driver.go_on.clear()
    first, second = (
        asyncio.ensure_future(machine.environments.inside(SCIENCE, {})) for _ in range(2)
    )
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    machine.driver.go_on.set()
    assert (await second).env["VIRTUAL_ENV"] == str(machine.driver.place)
    assert len(machine.driver.recipes) == 1


async def test_an_environment_is_in_use_while_a_task_is_inside(machine: Machine) -> None:
    os.utime(machine.driver.place, (1, 1))
    first = await machine.environments.inside(SCIENCE, {})
    second = await machine.environments.inside(SCIENCE, {})
    first.leave()
    assert machine.environments.in_use() == [str(machine.driver.place)]
    second.leave()
    assert machine.environments.in_use() == []
    assert machine.driver.place.stat().st_mtime > 1, "and it is seen when it was used last"


async def test_what_has_gone_is_prepared_anew(machine: Machine) -> None:
    await machine.environments.inside(SCIENCE, {})
    machine.driver.place.rmdir()
    await machine.environments.inside(SCIENCE, {})
    assert len(machine.driver.recipes) == 2


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KestrelError("pip failed", cause="no numpy"), "no-environment: science: pip failed: no n"),
        (OSError(28, "No space left"), "no-resources: environment science: .*No space left"),
    ],
)
async def test_the_reason_says_why_one_cannot_be_prepared(
    machine: Machine, error: Exception, reason: str
) -> None:
    machine.driver.error = error
    with pytest.raises(EnvironmentRefused, match=reason):
        await machine.environments.inside(SCIENCE, {})
    machine.driver.error = None
    await machine.environments.inside(SCIENCE, {})  # the next may be lucky


async def test_kinds_that_are_not_made_here_are_refused(machine: Machine) -> None:
    with pytest.raises(EnvironmentRefused, match="no-environment: none of kind podman"):
        await machine.environments.inside(TaskEnvironment("box", "podman"), {})
