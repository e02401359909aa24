"""Plugins are run for real; one that hangs, dies, floods or prints rubbish costs its own value."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from kestrelctl.core.properties.definition import read_definitions
from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.errors import NotAllowed
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.answers import Workers
from kestrelctl.protocol.commands import CommandList, CommandResults, ListCommands, RunAtWorkers
from kestrelctl.protocol.properties import ListProperties, PropertyList
from kestrelctl.protocol.requests import ListWorkers
from kestrelctl.protocol.triggers import FiredList, ListFired, TriggerTest, TryTrigger
from kestrelctl.worker.plugins.built_in import BUILT_IN
from kestrelctl.worker.plugins.definition_files import read_all_definitions
from kestrelctl.worker.plugins.plugin_process import PluginProcess

SOURCES_EXAMPLE = """\
[ram_free]
command = ram
parameters = MemFree
return_type = int
ticks = 60
"""
SOURCES_TRIGGER = """\
[client_query]
expr = { len(manager.clients) != 0 }
cmd = { sender.send_get_property() }
ticks = 30
on_update_check = no
"""


class Readings:
    """What a reader process has said."""

    def __init__(self) -> None:
        self.all: dict[str, list[PropertyReading]] = {}
        self._news = asyncio.Event()

    def put(self, name: str, reading: PropertyReading) -> None:
        self.all.setdefault(name, []).append(reading)
        self._news.set()

    async def of(self, name: str, n: int = 1) -> PropertyReading:
        """The n-th of a property."""
        while len(self.all.get(name, ())) < n:
            self._news.clear()
            await self._news.wait()
        return self.all[name][n - 1]


@asynccontextmanager
async def reading(text: str) -> AsyncIterator[Readings]:
    found = Readings()
    process = PluginProcess(read_definitions(text, "test"), found.put)
    task = asyncio.ensure_future(process.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def helpers() -> list[psutil.Process]:
    living = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in living if "plugin_host" in str(each.cmdline())]


def program(directory: Path, name: str, text: str) -> Path:
    place = directory / name
    place.write_text(f"#!{sys.executable}\n{text}")
    place.chmod(0o755)
    return place


def definition(name: str, command: object, return_type: str = "int", more: str = "") -> str:
    lines = f"command = {command}\nreturn_type = {return_type}\nticks = 1\n{more}\n"
    return f"[{name}]\n{lines}"


async def test_what_is_built_in_is_read() -> None:
    text = SOURCES_EXAMPLE + "".join(
        definition(name, command, kind, f"parameters = {words}")
        for name, command, kind, words in (
            ("load", "load", "float", "5"),
            ("disk_free", "disk", "int", "free /"),
            ("disk_percent", "disk", "float", "percent /"),
            ("sent", "network", "int", "sent"),
            ("processes", "processes", "int", ""),
            ("gpus", "gpus", "int", ""),
            ("users", "users", "int", "all"),
            ("at_the_console", "users", "int", "console"),
            ("kestrel", "package", "str", "python:kestrelctl"),
            ("libc", "package", "str", "libc6"),
        )
    )
    async with reading(text) as found:
        for name in found_names(text):
            missing = (await found.of(name)).missing
            if name in ("users", "at_the_console"):  # as a machine without both
                missing = missing.replace("neither logind nor utmp tells who is there", "")
            assert missing == "", name
        free = (await found.of("ram_free")).value
        assert isinstance(free, int)
        assert 0 < free < psutil.virtual_memory().total / 1024
        processes = (await found.of("processes")).value
        assert isinstance(processes, int)
        assert processes > 1
        await found.of("load", 2)
    tried = {words.words[0] for words in read_definitions(text, "test")}
    assert tried | {"batch"} == set(BUILT_IN)  # this one needs a batch system: test_batch_queue.py


def found_names(text: str) -> list[str]:
    return [each.name for each in read_definitions(text, "test")]


@pytest.mark.parametrize(
    ("command", "words", "why"),
    [
        ("ram", "NoSuch", "/proc/meminfo has no NoSuch"),
        ("load", "7", "'7' is not one of 1, 5, 15"),
        ("disk", "free /no/such/place", "FileNotFoundError"),
        ("network", "sent nosuch0", "there is no interface nosuch0"),
        ("package", "python:no-such", "this Python has no package no-such"),
        ("package", "no-such-package-at-all", "there is no package no-such-package-at-all"),
        ("package", "--version", "of which package?"),
        ("/no/such/program", "", "/no/such/program cannot be run"),
    ],
)
async def test_what_cannot_be_read_says_why(command: str, words: str, why: str) -> None:
    async with reading(definition("p", command, "str", f"parameters = {words}")) as found:
        told = await found.of("p")
        assert told.value is None
        assert told.missing.startswith(why)


async def test_plugins_that_hang_cost_their_own_values_alone(tmp_path: Path) -> None:
    bad = program(tmp_path, "bad", "import time; time.sleep(600)")
    good = program(tmp_path, "good", "print(42)")
    text = "".join(definition(f"bad{n}", bad, "int", "timeout = 1") for n in range(20))
    async with reading(text + definition("good", good)) as found:
        assert (await found.of("bad19", 2)).missing == "it took longer than 1 s"
        for n in (1, 2, 3):
            assert (await found.of("good", n)).value == 42
        [helper] = helpers()
    await asyncio.to_thread(helper.wait)
    left = [each.info["cmdline"] for each in psutil.process_iter(["cmdline"])]
    assert not [words for words in left if words and str(tmp_path) in " ".join(words)]


async def test_a_plugin_of_a_package_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "weather-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: weather\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[kestrel.properties]\nwind = weather:wind\n")
    (tmp_path / "weather.py").write_text("def wind(words):\n    return len(words) * 2.5\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with reading(definition("wind", "wind", "float", "parameters = north east")) as found:
        assert (await found.of("wind")).value == 5.0


async def test_the_process_that_reads_is_started_again() -> None:
    async with reading(definition("load", "load", "float")) as found, asyncio.timeout(20):
        await found.of("load")
        [helper] = helpers()
        os.kill(helper.pid, signal.SIGKILL)
        helper.wait()
        n = len(found.all["load"])
        while (await found.of("load", n)).missing != "the process that runs plugins has ended":
            n += 1
        assert (await found.of("load", n + 1)).missing == ""


async def test_a_pool_knows_what_its_workers_read(tmp_path: Path) -> None:
    file = tmp_path / "properties.ini"
    bad = program(tmp_path, "bad", "import time; time.sleep(600)")
    file.write_text(SOURCES_EXAMPLE + definition("bad", bad, "int", "timeout = 1"))
    assert len(read_all_definitions([file])) == 2
    async with throw_away_pool(2, properties=(file,)) as pool, connect_local(pool) as user:
        async with asyncio.timeout(30):
            while True:
                answer = await user.ask(ListProperties())
                assert isinstance(answer, PropertyList)
                sums = {each.name: each.summary for each in answer.properties}
                if len(sums) == 2 and sums["ram_free"].count == 2:
                    break
                await asyncio.sleep(0.05)
        assert sums["bad"].missing == 2
        workers = await user.ask(
            ListWorkers(where="Property_ram_free > 0 && Property_ram_free < 1e12")
        )
        assert isinstance(workers, Workers)
        assert len(workers.workers) == 2


async def test_what_is_asked_for_is_read_at_once() -> None:
    found = Readings()
    process = PluginProcess(read_definitions(SOURCES_EXAMPLE, "test"), found.put)
    task = asyncio.ensure_future(process.run())
    try:
        async with asyncio.timeout(30):
            await found.of("ram_free")
            process.read_now(["no_such"])
            process.read_now(["ram_free"])
            await found.of("ram_free", 2)
            process.read_now([])
            await found.of("ram_free", 3)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_admin_has_workers_run_what_they_offer(tmp_path: Path) -> None:
    file = tmp_path / "commands.ini"
    file.write_text(
        "[double]\ncommand = /bin/sh -c 'echo $(($0 * 2))' {n}\nparameters = n:int\n"
        "return_type = int\n\n[fail]\ncommand = /bin/false\n"
    )
    request = RunAtWorkers(name="double", values={"n": "21"})
    async with throw_away_pool(2, commands=(file,)) as pool, asyncio.timeout(60):
        async with connect_local(pool) as user:
            while True:
                offered = await user.ask(ListCommands())
                assert isinstance(offered, CommandList)
                if offered.commands and offered.commands[0].workers == 2:
                    break
                await asyncio.sleep(0.05)
            with pytest.raises(NotAllowed):
                await user.ask(request)
        async with connect_local(pool, admin=True) as admin:
            answer = await admin.ask(request)
            assert isinstance(answer, CommandResults)
            assert [(each.value, each.error) for each in answer.results] == [(42, "")] * 2
            failed = await admin.ask(RunAtWorkers(name="fail"))
            assert isinstance(failed, CommandResults)
            assert {each.error for each in failed.results} == {"exit status 1"}


async def test_the_examples_of_the_source_run_unchanged(tmp_path: Path) -> None:
    properties, triggers = tmp_path / "properties.ini", tmp_path / "triggers.ini"
    properties.write_text(SOURCES_EXAMPLE)
    triggers.write_text(SOURCES_TRIGGER)
    files = {"properties": (properties,), "triggers": (triggers,)}
    async with throw_away_pool(1, **files) as pool, connect_local(pool, admin=True) as admin:
        tested = await admin.ask(TryTrigger(name="client_query"))
        assert isinstance(tested, TriggerTest)
        assert (tested.is_true, tested.actions) == (True, ["query()"])
        async with asyncio.timeout(60):  # its ticks are 30 seconds
            while True:
                found = await admin.ask(ListFired())
                assert isinstance(found, FiredList)
                if found.fired:
                    break
                await asyncio.sleep(0.5)
        assert (found.fired[0].actions, found.fired[0].problems) == (["query()"], [])
        answer = await admin.ask(ListProperties(names=["ram_free"]))
        assert isinstance(answer, PropertyList)
        assert answer.properties[0].summary.count == 1
