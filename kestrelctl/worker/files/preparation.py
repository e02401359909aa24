"""Fetches the inputs of commands, and prepares their environments, before they start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from msgspec.structs import replace

from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.worker.connection.parent_file_questions import Left
from kestrelctl.worker.environments.task_environments import Inside
from kestrelctl.worker.files.gathered import Gathered
from kestrelctl.worker.files.input_cache import InputCache
from kestrelctl.worker.run.executor import CommandSpec

#: Is called when a command needs something no more.
_GivesBack = Callable[[], None]


class Preparation:
    """Gets what commands need, and keeps it until they have ended.

    Args:
        cache: from which inputs are taken.
        find: tells what tasks of a parent left, given the number of an attempt that is to find it,
            and which these are; ParentFilesGone if that cannot be told.
        inside: lets a command with its variables into an environment, which is prepared if it is
            not there; EnvironmentRefused if it cannot be.
    """

    def __init__(
        self,
        cache: InputCache,
        find: Callable[[int, ParentFiles], Awaitable[Left]],
        inside: Callable[[TaskEnvironment, Mapping[str, str]], Awaitable[Inside]],
    ) -> None:
        self.cache = cache
        self._find = find
        self._inside = inside
        self._taken: dict[int, list[_GivesBack]] = {}

    def serves(self, command: CommandSpec) -> bool:
        """Whether a command needs anything."""
        program = command.program
        files = program.inputs or program.parent_files or program.stdin
        return bool(files) or program.environment is not None

    async def prepare(self, command: CommandSpec) -> CommandSpec:
        """Gives a command what it needs: `give_back` that when it has ended, whatever came of this.

        Raises:
            AttemptRefused: something cannot be fetched or prepared.
        """
        if not self.serves(command):
            return command
        number, program = command.number, command.program
        taken = self._taken[number] = []
        links = [
            (wanted.name, await self._take(taken, command, wanted)) for wanted in program.inputs
        ]
        for files in program.parent_files:
            gathered = Gathered(files.name, await self._find(number, files))
            links.append((files.name, await self._take(taken, command, gathered)))
        there = replace(command, links=tuple(links))
        if links:
            there = replace(there, inputs_dir=self.cache.directory_of(command.owner))
        if program.environment is not None:
            env, leave = await self._inside(program.environment, command.env)
            taken.append(leave)
            there = replace(there, env=env)
        if program.stdin is not None:
            there = replace(there, stdin_path=await self._take(taken, command, program.stdin))
        fetched = replace(program, inputs=(), parent_files=(), stdin=None, environment=None)
        return replace(there, program=fetched)

    async def _take(
        self, taken: list[_GivesBack], command: CommandSpec, wanted: Input | Gathered
    ) -> str:
        """Takes an input for a command until that ends; returns where it is."""
        entry = await self.cache.take(command.owner, wanted, command.env)
        taken.append(partial(self.cache.release, entry))
        return entry.path

    def give_back(self, number: int) -> None:
        """Gives back what a command needed that has ended, or is not started."""
        taken = self._taken.pop(number, [])
        while taken:
            taken.pop()()

    async def close(self) -> None:
        """Gives everything back; nothing is under way any more."""
        await self.cache.close()
