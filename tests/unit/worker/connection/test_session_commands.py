"""A worker runs the commands that it was given definitions of, some at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kestrelctl.core.properties.command_definition import read_commands
from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.protocol import workers
from kestrelctl.protocol.commands import (
    CommandDone,
    CommandsHere,
    OfferedCommand,
    ReadProperties,
    RunCommand,
)
from kestrelctl.worker.connection.commands import MOST_AT_ONCE, SessionCommands

TOUCH = """
[touch]
command = /usr/bin/touch {file}
parameters = file:str
timeout = 5
"""


class Runner:
    """Runs nothing, and says how it went."""

    def __init__(self) -> None:
        self.ran: list[tuple[list[str], str, float]] = []
        self.read: list[list[str]] = []
        self.running = 0
        self.answer = PropertyReading(1.0, None)

    async def run_program(
        self, words: Sequence[str], return_type: str, timeout_seconds: float
    ) -> PropertyReading:
        self.ran.append((list(words), return_type, timeout_seconds))
        await asyncio.sleep(0)
        return self.answer

    def read_now(self, names: Sequence[str]) -> None:
        self.read.append(list(names))


class Worker:
    def __init__(self, text: str = TOUCH) -> None:
        agent: Any = SimpleNamespace(welcomed=True)
        self.said: list[workers.Message] = []
        self.session = SessionCommands(agent, self.said.append)
        self.session.commands = {each.name: each for each in read_commands(text, "t")}
        self.session.runs = self.runner = Runner()

    async def runs(self, name: str, **values: Any) -> CommandDone:
        self.session.on_run(RunCommand(request="1", name=name, values=values))
        while not self.said:
            await asyncio.sleep(0)
        done = self.said.pop()
        assert isinstance(done, CommandDone)
        return done


async def test_it_says_what_it_offers_and_nothing_if_that_is_nothing() -> None:
    worker = Worker()
    worker.session.on_welcome()
    assert worker.said == [
        CommandsHere(commands=[OfferedCommand("touch", (("file", "str"),), 5.0)])
    ]
    none = Worker("")
    none.session.on_welcome()
    assert none.said == []


async def test_a_command_is_run_with_its_values_and_its_answer_is_told() -> None:
    worker = Worker()
    assert await worker.runs("touch", file="/tmp/x") == CommandDone(request="1")
    assert worker.runner.ran == [(["/usr/bin/touch", "/tmp/x"], "", 5.0)]
    worker.runner.answer = PropertyReading(1.0, None, "exit status 1: no")
    assert (await worker.runs("touch", file="/tmp/x")).error == "exit status 1: no"


async def test_nothing_is_run_that_is_not_defined_or_with_other_values() -> None:
    worker = Worker()
    assert (await worker.runs("sh", file="x")).error == "there is no command sh"
    assert (await worker.runs("touch")).error == "file is missing"
    assert (await worker.runs("touch", file=7)).error == "file must be of type str"
    assert "does not take" in (await worker.runs("touch", file="--help")).error
    worker.runner.running = MOST_AT_ONCE
    assert (await worker.runs("touch", file="x")).error == "8 commands run here already"
    assert worker.runner.ran == []


async def test_properties_are_read_when_the_pool_wants_that() -> None:
    worker = Worker()
    worker.session.on_read(ReadProperties(names=["load"]))
    assert worker.runner.read == [["load"]]
    worker.session.runs = None
    worker.session.on_read(ReadProperties())
