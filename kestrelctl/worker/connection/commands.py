"""The part of a session that runs commands on its machine for the pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.properties.command_definition import CommandDefinition
from kestrelctl.core.properties.reading import PropertyReading, PropertyValue
from kestrelctl.errors import UsageError
from kestrelctl.protocol import workers
from kestrelctl.protocol.commands import (
    MOST_ERROR_CHARACTERS,
    CommandDone,
    CommandsHere,
    OfferedCommand,
    ReadProperties,
    RunCommand,
)

log = logging.getLogger(__name__)

#: The most that run at once.
MOST_AT_ONCE = 8


class RunsPrograms(Protocol):
    """Runs programs: `worker.plugins.plugin_process.PluginProcess`."""

    @property
    def running(self) -> int:
        """The number of programs that run."""
        ...

    async def run_program(
        self, words: Sequence[str], return_type: str, timeout_seconds: float
    ) -> PropertyReading:
        """Returns what a program prints, or why there is no value."""
        ...

    def read_now(self, names: Sequence[str]) -> None:
        """Has properties read."""


class SessionCommands:
    """Says which commands there are, and runs those and nothing else.

    Attributes:
        commands: by name.
        runs: what runs them; None if this worker has no plugins at all.
    """

    def __init__(self, agent: Agent, send: Callable[[workers.Message], None]) -> None:
        self._agent = agent
        self._send = send
        self.commands: Mapping[str, CommandDefinition] = {}
        self.runs: RunsPrograms | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def on_welcome(self) -> None:
        """Tells the pool that has welcomed this worker which commands there are."""
        if self.commands:
            offered = [
                OfferedCommand(each.name, each.parameters, each.timeout_seconds)
                for each in self.commands.values()
            ]
            self._send(CommandsHere(commands=offered))

    def on_read(self, message: ReadProperties) -> None:
        """Has values read that the pool wants to know now."""
        if self.runs is not None:
            self.runs.read_now(message.names)

    def on_run(self, message: RunCommand) -> None:
        """Runs a command for the pool."""
        task = asyncio.get_running_loop().create_task(self._run(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, message: RunCommand) -> None:
        value, error = await self._result(message)
        how = f": {error}" if error else ""
        log.info("the pool had the command %s run%s", message.name, how)
        if self._agent.welcomed:  # else nobody waits for it any more
            said = error[:MOST_ERROR_CHARACTERS]
            self._send(CommandDone(request=message.request, value=value, error=said))

    async def _result(self, message: RunCommand) -> tuple[PropertyValue | None, str]:
        definition = self.commands.get(message.name)
        if definition is None or self.runs is None:
            return None, f"there is no command {message.name}"
        if self.runs.running >= MOST_AT_ONCE:
            return None, f"{MOST_AT_ONCE} commands run here already"
        values = {name: each for name, each in message.values.items() if each is not None}
        try:
            words = definition.filled(values)
        except UsageError as error:
            return None, error.message
        found = await self.runs.run_program(
            words, definition.return_type, definition.timeout_seconds
        )
        return found.value, found.missing
