"""Fetches the inputs of commands, and prepares their environments, before they start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from kestrelctl.core.model.end_reason import CANCELLED, MOVED, EndKind, ReasonText
from kestrelctl.core.model.files.inputs import Input
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.worker.connection.parent_file_questions import Left
from kestrelctl.worker.environments.task_environments import Inside
from kestrelctl.worker.files.gathered import Gathered
from kestrelctl.worker.files.input_cache import InputCache
from kestrelctl.worker.run.executor import AttemptRefused, CommandSpec, Completion, Executor

#: Is called when a command needs something no more.
_GivesBack = Callable[[], None]


class StagingExecutor:
    """An `Executor` that has another one start commands when their inputs are there.

    Commands without inputs and environment start at once. The time limit of the others begins with
    their process, too. What cannot be fetched or prepared ends its attempt with the reason.

    Args:
        on_completion: called on the event loop with each `Completion`.
        inner: makes the executor that runs commands, given what it is to call.
        cache: makes the cache from which inputs are taken, after that: an executor wants to be
            there before this process has threads.
        find: tells what tasks of a parent left, given the number of an attempt that is to find it,
            and which these are; ParentFilesGone if that cannot be told.
        inside: lets a command with its variables into an environment, which is prepared if it is
            not there; EnvironmentRefused if it cannot be.
    """

    def __init__(
        self,
        on_completion: Callable[[Completion], None],
        inner: Callable[[Callable[[Completion], None]], Executor],
        cache: Callable[[], InputCache],
        find: Callable[[int, ParentFiles], Awaitable[Left]],
        inside: Callable[[TaskEnvironment, Mapping[str, str]], Awaitable[Inside]],
    ) -> None:
        self._on_completion = on_completion
        self._inner = inner(self._ended)
        self.cache = cache()
        self._find = find
        self._inside = inside
        self.start_seconds = self._inner.start_seconds
        self.most_ahead = self._inner.most_ahead
        self._loop = asyncio.get_running_loop()
        self._staging: dict[int, asyncio.Task[None]] = {}
        self._taken: dict[int, list[_GivesBack]] = {}

    def start(self, command: CommandSpec) -> None:
        """Start a command, soon if it has inputs.

        Raises:
            ValueError: the number is in use.
        """
        number = command.number
        if number in self._taken:
            raise ValueError(f"attempt {number} runs already")
        program = command.program
        files = program.inputs or program.parent_files or program.stdin
        if not files and program.environment is None:
            self._inner.start(command)
            return
        self._taken[number] = []
        self._staging[number] = self._loop.create_task(self._stage(command))

    async def _stage(self, command: CommandSpec) -> None:
        number, taken = command.number, self._taken[command.number]
        try:
            links = [
                (wanted.name, await self._take(taken, command, wanted))
                for wanted in command.program.inputs
            ]
            for files in command.program.parent_files:
                gathered = Gathered(files.name, await self._find(number, files))
                links.append((files.name, await self._take(taken, command, gathered)))
            program = replace(command.program, inputs=(), parent_files=(), stdin=None)
            there = replace(command, links=tuple(links))
            if links:
                there = replace(there, inputs_dir=self.cache.directory_of(command.owner))
            if command.program.environment is not None:
                env, leave = await self._inside(command.program.environment, command.env)
                taken.append(leave)
                program = replace(program, environment=None)
                there = replace(there, env=env)
            if command.program.stdin is not None:
                stdin = await self._take(taken, command, command.program.stdin)
                there = replace(there, stdin_path=stdin)
            del self._staging[number]
            self._inner.start(replace(there, program=program))
        except asyncio.CancelledError:
            self._let_go(taken)
            raise
        except AttemptRefused as error:
            self._end(number, error.reason)
        except Exception as error:
            self._end(number, EndKind.NO_RESOURCES.text(repr(error)))

    async def _take(
        self, taken: list[_GivesBack], command: CommandSpec, wanted: Input | Gathered
    ) -> str:
        """Where an input is for a command, until that ends."""
        entry = await self.cache.take(command.owner, wanted, command.env)
        taken.append(partial(self.cache.release, entry))
        return entry.path

    def _end(self, number: int, reason: ReasonText) -> None:
        self._staging.pop(number, None)
        self._ended(Completion(number, reason=reason, started_at=time.time()))

    def _ended(self, completion: Completion) -> None:
        self._let_go(self._taken.pop(completion.number, []))
        self._on_completion(completion)

    def _let_go(self, taken: list[_GivesBack]) -> None:
        while taken:
            taken.pop()()

    def begin(self, number: int) -> None:
        """Start a command that waits."""
        self._inner.begin(number)

    def withdraw(self, number: int) -> None:
        """Forget a command that waits."""
        self._inner.withdraw(number)

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        """End a command, also one whose inputs are under way."""
        staging = self._staging.pop(number, None)
        if staging is None:
            return self._inner.kill(number, reason)
        staging.cancel()
        self._loop.call_soon(self._end, number, reason)
        return True

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """Store a command's checkpoint; one whose inputs are under way has none, and may stop."""
        if number not in self._staging:
            self._inner.take_checkpoint(number, stop=stop)
        elif stop:
            self.kill(number, MOVED)

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        """What commands use that run; those whose inputs are under way use nothing."""
        return self._inner.used(numbers)

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Part of the output of a command. NotFound if it is not here."""
        return self._inner.read_output(number, stream, offset, limit)

    def left(self) -> list[CommandSpec]:
        """What an earlier process has run. It had its inputs, and does not get them again."""
        return self._inner.left()

    async def close(self) -> None:
        """Kill every command, report none of them, and give everything back."""
        staging, self._staging = self._staging, {}
        for task in staging.values():
            task.cancel()
        if staging:
            await asyncio.wait(staging.values())
        await self._inner.close()
        await self.cache.close()
