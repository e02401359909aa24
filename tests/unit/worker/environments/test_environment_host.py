"""What a worker's machine does with orders for environments."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from neighbourskit import on_its_own_clock

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import amounts
from kestrelctl.errors import KestrelError
from kestrelctl.protocol.workers import EnvironmentsHere, StartEnvironment, StopEnvironment
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.environment_host import EnvironmentHost


class Machine:
    """A worker's session: what it offers, what its tasks use, what it has said."""

    def __init__(self) -> None:
        self.ad = WorkerAd(assets={"cpus": 4.0, "memory": 1000.0})
        self.used: dict[str, float] = {}
        self.said: list[EnvironmentsHere] = []

    def free(self) -> dict[str, int]:
        return amounts({n: a - self.used.get(n, 0.0) for n, a in self.ad.assets.items()})

    def resize(self, ad: WorkerAd) -> None:
        self.ad = ad

    def say(self, message: EnvironmentsHere) -> None:
        self.said.append(message)

    def ended(self) -> list[tuple[int, str]]:
        return [(each.number, each.why) for said in self.said for each in said.ended]


class Driver:
    """Makes environments that are names in a list."""

    def __init__(self) -> None:
        self.there: dict[str, EnvironmentStatus] = {}
        self.started: list[tuple[str, EnvironmentClass, tuple[str, ...], str]] = []
        self.prepare_seconds = 0.0
        self.problem = ""
        self.stop_problems = 0
        self.status_seconds = 0.0

    async def prepare(self, wanted: EnvironmentClass) -> str:
        await asyncio.sleep(self.prepare_seconds)
        if self.problem:
            raise KestrelError(self.problem, cause="of that")
        return "prepared"

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        self.there[name] = EnvironmentStatus(True)
        self.started.append((name, wanted, tuple(command), token))

    async def collect(self, in_use: Collection[str]) -> list[str]:
        return []

    async def status(self) -> dict[str, EnvironmentStatus]:
        found = dict(self.there)
        await asyncio.sleep(self.status_seconds)
        return found

    async def stop(self, name: str) -> None:
        if self.stop_problems:
            self.stop_problems -= 1
            raise KestrelError("it does not stop")
        self.there.pop(name, None)

    async def sweep(self) -> list[str]:
        left = list(self.there)
        self.there.clear()
        return left


def host(tmp_path: Path) -> tuple[EnvironmentHost, Machine, Driver]:
    machine, driver = Machine(), Driver()
    made = EnvironmentHost(
        machine, {"venv": driver}, EnvironmentOwner("pool", "w"), tmp_path / "recipes",
        lambda jid, password: f"{jid} {password}", lambda cls, name: ("run", name, *cls.tags),
    )  # fmt: skip
    return made, machine, driver


def order(number: int = 1, **more: Any) -> StartEnvironment:
    given: dict[str, Any] = {
        "of": "science", "kind": "venv", "recipe": "numpy", "tags": ["numpy"],
        "assets": {"cpus": 1.0}, "start_seconds": 60.0, "worker": f"env-{number}", "jid": "join@x",
        "password": "secret",
    }  # fmt: skip
    return StartEnvironment(number=number, **{**given, **more})


@on_its_own_clock
async def test_an_order_is_started_with_its_recipe_and_the_worker_offers_less(
    tmp_path: Path,
) -> None:
    made, machine, driver = host(tmp_path)
    made.on_start(order())
    assert machine.ad.assets == {"cpus": 3.0, "memory": 750.0}, "a part of all that it has"
    await asyncio.sleep(0.5)
    [(name, wanted, command, token)] = driver.started
    assert name.endswith("-1")
    assert Path(wanted.recipe).read_text() == "numpy"
    assert os.access(wanted.recipe, os.X_OK), "that of a root tree is a program"
    assert [each.name for each in Path(wanted.recipe).parent.iterdir()] == ["recipe"]
    assert made.in_use() == ["prepared"]
    assert (wanted.resources.cpus, wanted.resources.memory_bytes) == (1.0, 250)
    assert (command, token) == (("run", "env-1", "numpy"), "join@x secret")
    assert [each.starts for each in machine.said[-1].here] == [False]
    await made.close()


@on_its_own_clock
async def test_one_that_is_stopped_is_gone_and_gives_back_what_it_had(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    made.on_start(order())
    await asyncio.sleep(0.5)
    made.on_stop(StopEnvironment(number=1))
    await asyncio.sleep(0.5)
    assert machine.ad.assets == {"cpus": 4.0, "memory": 1000.0}
    assert driver.there == {}
    assert machine.ended() == [(1, "")]
    assert made.in_use() == []
    assert list((tmp_path / "recipes").iterdir()) == []
    await made.close()


@on_its_own_clock
async def test_the_memory_that_tasks_have_is_left_to_them(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    machine.used = {"memory": 900.0}
    made.on_start(order(1))
    made.on_start(order(2))
    await asyncio.sleep(0.5)
    assert machine.ad.assets["memory"] == 900.0
    assert [each[1].resources.memory_bytes for each in driver.started] == [100]
    [(number, why)] = machine.ended()
    assert (number, "too little memory is free" in why) == (2, True)
    await made.close()


@on_its_own_clock
async def test_nothing_is_taken_from_tasks_that_run(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    machine.used = {"cpus": 3.5}
    made.on_start(order())
    assert machine.ad.assets["cpus"] == 4.0
    [(_, why)] = machine.ended()
    assert "too little cpus is free" in why
    assert not driver.started
    await made.close()


@on_its_own_clock
async def test_a_worker_offers_the_least_there_is_when_an_environment_has_all(
    tmp_path: Path,
) -> None:
    made, machine, _ = host(tmp_path)
    made.on_start(order(assets={"cpus": 4.0}))
    assert machine.ad.assets["cpus"] == 0.001
    await asyncio.sleep(0.5)
    made.on_stop(StopEnvironment(number=1))
    await asyncio.sleep(0.5)
    assert machine.ad.assets["cpus"] == 4.0
    await made.close()


@on_its_own_clock
async def test_a_start_that_fails_says_why_and_gives_back_what_it_had(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    driver.problem = "no such package"
    made.on_start(order())
    await asyncio.sleep(0.5)
    assert machine.ended() == [(1, "no such package: of that")]
    assert machine.ad.assets["cpus"] == 4.0
    await made.close()


@on_its_own_clock
async def test_a_start_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    driver.prepare_seconds = 1000.0
    made.on_start(order())
    await asyncio.sleep(61)
    assert machine.ended() == [(1, "it was not started within 60 s")]
    await made.close()


@on_its_own_clock
async def test_one_that_is_ordered_twice_is_started_once(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    made.on_start(order())
    made.on_start(order())
    await asyncio.sleep(0.5)
    assert len(driver.started) == 1
    assert machine.ad.assets["cpus"] == 3.0
    await made.close()


@on_its_own_clock
async def test_one_whose_worker_ends_by_itself_is_told_of_with_what_it_said(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    made.on_start(order())
    await asyncio.sleep(0.5)
    [name] = driver.there
    driver.there[name] = EnvironmentStatus(False, "no route to the server")
    await asyncio.sleep(2)
    assert machine.ended() == [(1, "its worker has ended: no route to the server")]
    assert driver.there == {}
    await made.close()


@on_its_own_clock
async def test_one_that_starts_during_a_look_at_the_others_has_not_ended(tmp_path: Path) -> None:
    """An engine may take a second to list what it has."""
    made, machine, driver = host(tmp_path)
    driver.status_seconds = 0.9
    made.on_start(order(1))
    await asyncio.sleep(1.5)
    made.on_start(order(2))
    await asyncio.sleep(3.0)
    assert machine.ended() == []
    assert len(driver.there) == 2
    await made.close()


@on_its_own_clock
async def test_one_that_does_not_stop_keeps_what_it_has_until_it_does(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    made.on_start(order())
    await asyncio.sleep(0.5)
    driver.stop_problems = 2
    made.on_stop(StopEnvironment(number=1))
    await asyncio.sleep(15)
    assert machine.ad.assets["cpus"] == 3.0
    assert machine.ended() == []
    await asyncio.sleep(10)
    assert machine.ad.assets["cpus"] == 4.0
    assert machine.ended() == [(1, "")]
    await made.close()


@on_its_own_clock
async def test_one_that_does_not_stop_hides_no_end_of_another(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    for number in (1, 2):
        made.on_start(order(number))
    await asyncio.sleep(0.5)
    first, second = driver.there
    driver.stop_problems = 1
    driver.there[first] = EnvironmentStatus(False)
    await asyncio.sleep(2.0)
    driver.there[second] = EnvironmentStatus(False)
    await asyncio.sleep(2.0)
    assert [number for number, _ in machine.ended()] == [2]
    await made.close()
    assert driver.there == {}, "the first is stopped again"


@on_its_own_clock
async def test_of_one_that_is_not_here_it_is_said_that_it_has_gone(tmp_path: Path) -> None:
    made, machine, _ = host(tmp_path)
    made.on_stop(StopEnvironment(number=7))
    assert machine.ended() == [(7, "")]
    await made.close()


@on_its_own_clock
async def test_what_no_driver_makes_is_refused(tmp_path: Path) -> None:
    made, machine, _ = host(tmp_path)
    made.on_start(order(kind="podman"))
    assert machine.ended() == [(1, "no environments of kind podman are made here")]
    await made.close()


@on_its_own_clock
async def test_what_an_earlier_process_has_left_is_stopped(tmp_path: Path) -> None:
    made, _, driver = host(tmp_path)
    driver.there["kestrel-old"] = EnvironmentStatus(True)
    await made.sweep()
    assert driver.there == {}
    await made.close()


@on_its_own_clock
async def test_when_the_worker_ends_all_are_stopped_and_none_is_started(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    made.on_start(order(1))
    made.on_start(order(2))
    await asyncio.sleep(0.5)
    await made.close()
    assert driver.there == {}
    made.on_start(order(3))
    assert machine.ended()[-1] == (3, "this worker is ending")


@on_its_own_clock
async def test_a_node_runs_what_its_class_says_with_nothing_to_join_with(tmp_path: Path) -> None:
    made, machine, driver = host(tmp_path)
    made.on_start(order(runs=["slurmd", "-N", "{name}"], jid="", password="", tags=[]))
    await asyncio.sleep(0.5)
    [(_, _, command, token)] = driver.started
    assert (command, token) == (("slurmd", "-N", "env-1"), "")
    assert machine.ad.assets["cpus"] == 3.0
    assert [(each.starts, each.node) for each in machine.said[-1].here] == [(False, True)]
    driver.there.clear()
    await asyncio.sleep(2)
    assert machine.ended() == [(1, "its program has ended")]
    assert machine.ad.assets["cpus"] == 4.0
