"""Attempts whose inputs are fetched first: they start when all is there, and can be stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import pytest
from inputkit import ADA, Share, an_input

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.errors import FileExpired
from kestrelctl.worker.addresses.address_reader import AddressReader
from kestrelctl.worker.connection.parent_file_questions import Left, ParentFilesGone
from kestrelctl.worker.environments.task_environments import EnvironmentRefused, Inside
from kestrelctl.worker.files.input_cache import InputCache
from kestrelctl.worker.files.staging import StagingExecutor
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion

#: A job that the pool has forgotten.
GONE = 9


class Runner:
    """An executor whose commands run until the test ends them.

    Attributes:
        started: the commands, in order.
        killed: (number, reason).
        broken: whether starts fail.
    """

    def __init__(self, on_completion: Callable[[Completion], None]) -> None:
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = 0
        self.complete = on_completion
        self.started: list[CommandSpec] = []
        self.killed: list[tuple[int, str]] = []
        self.broken = self.closed = False

    def start(self, command: CommandSpec) -> None:
        if self.broken:
            raise RuntimeError("no threads")
        self.started.append(command)

    def kill(self, number: int, reason: str = "cancelled") -> bool:
        self.killed.append((number, reason))
        return True

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        return {}

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        return b""

    def left(self) -> list[CommandSpec]:
        return []

    async def close(self) -> None:
        self.closed = True


class Environments:
    """Those whose preparation fails are called so; `left` has those that tasks have left."""

    def __init__(self) -> None:
        self.left: list[str] = []

    async def inside(self, wanted: TaskEnvironment, env: Mapping[str, str]) -> Inside:
        if wanted.of == "broken":
            raise EnvironmentRefused(EndKind.NO_ENVIRONMENT, "broken: pip failed")
        variables = {**env, "VIRTUAL_ENV": f"/made/{wanted.of}"}
        return Inside(variables, lambda: self.left.append(wanted.of))


class Machine:
    """A worker's executor, and what it says of attempts.

    Attributes:
        ends: of the attempts, in order.
    """

    def __init__(self, directory: Path) -> None:
        self.share = Share()
        self.environments = Environments()
        self.ends: list[Completion] = []
        self.executor = StagingExecutor(
            self.ends.append,
            self._runner,
            lambda: InputCache(directory, 12, self.share.get, AddressReader(), "pool"),
            self._find,
            self.environments.inside,
        )
        self.cache = self.executor.cache

    def _runner(self, on_completion: Callable[[Completion], None]) -> Runner:
        self.runner = Runner(on_completion)
        return self.runner

    async def _find(self, number: int, files: ParentFiles) -> Left:
        if files.job_id == GONE:
            raise ParentFilesGone(EndKind.NO_INPUT, "the pool has forgotten it")
        assert number == 1
        return ()

    def start(self, number: int, *texts: str) -> None:
        """Starts an attempt of Ada's whose inputs have these texts, and these names."""
        inputs = tuple(an_input(text) for text in texts)
        self.executor.start(
            CommandSpec(number, Program(argv=("true",), inputs=inputs), {}, owner=ADA)
        )

    async def settled(self) -> None:
        """Returns when nothing more happens by itself."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "inputs")
    yield machine
    await machine.executor.close()


async def test_an_attempt_without_inputs_starts_at_once(machine: Machine) -> None:
    machine.start(1)
    assert [command.number for command in machine.runner.started] == [1]


async def test_an_attempt_starts_when_its_inputs_are_there_and_finds_links_to_them(
    machine: Machine,
) -> None:
    machine.share.open.clear()
    machine.start(1, "alpha")
    machine.start(2)
    await machine.settled()
    assert [command.number for command in machine.runner.started] == [2], "others do not wait"
    machine.share.open.set()
    await machine.settled()
    command = machine.runner.started[1]
    [(name, path)] = command.links
    assert (name, Path(path).read_text()) == ("in", "alpha")
    assert command.inputs_dir == machine.cache.directory_of(ADA)
    assert path.startswith(command.inputs_dir + "/")


async def test_what_an_attempt_uses_is_kept_until_it_has_ended(machine: Machine) -> None:
    machine.start(1, "alpha", "bravo")
    await machine.settled()
    machine.start(2, "cargo")
    await machine.settled()
    [end] = machine.ends
    assert end.number == 2
    assert "does not fit into the worker's cache now" in end.reason
    machine.runner.complete(Completion(1, 0))
    machine.start(3, "cargo")
    await machine.settled()
    assert [command.number for command in machine.runner.started] == [1, 3]


async def test_what_cannot_be_had_ends_the_attempt_with_the_reason(machine: Machine) -> None:
    machine.share.errors = [FileExpired("the file has expired")]
    machine.start(1, "alpha")
    await machine.settled()
    [end] = machine.ends
    assert (end.number, end.exit_code) == (1, None)
    assert end.reason == "no-input: 'in': the file has expired"
    assert not machine.runner.started
    machine.start(1, "alpha")  # the number is free again
    await machine.settled()
    assert machine.runner.started


async def test_a_cancel_ends_an_attempt_whose_inputs_are_under_way(machine: Machine) -> None:
    machine.share.open.clear()
    machine.start(1, "alpha")
    await machine.settled()
    assert machine.executor.kill(1, "cancelled")
    assert not machine.ends, "never from inside of kill"
    await machine.settled()
    assert [(end.number, end.reason) for end in machine.ends] == [(1, "cancelled")]
    assert machine.share.ended == 1, "nor is it fetched any further"
    machine.share.open.set()
    await machine.settled()
    assert not machine.runner.started


async def test_a_cancel_of_one_that_runs_goes_on_to_what_runs_it(machine: Machine) -> None:
    machine.start(1, "alpha")
    await machine.settled()
    assert machine.executor.kill(1, "time-limit")
    assert machine.runner.killed == [(1, "time-limit")]


async def test_a_number_in_use_is_refused(machine: Machine) -> None:
    machine.share.open.clear()
    machine.start(1, "alpha")
    with pytest.raises(ValueError, match="runs already"):
        machine.start(1, "alpha")


async def test_a_start_that_fails_ends_the_attempt(machine: Machine) -> None:
    machine.runner.broken = True
    machine.start(1, "alpha")
    await machine.settled()
    [end] = machine.ends
    assert end.reason.startswith("no-resources: ")
    machine.runner.broken = False
    machine.start(2, "alpha", "bravo")
    await machine.settled()
    assert len(machine.share.gets) == 2


async def test_a_close_ends_what_is_under_way_and_reports_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "inputs")
    machine.share.open.clear()
    machine.start(1, "alpha")
    await machine.settled()
    await machine.executor.close()
    assert machine.runner.closed
    assert (machine.share.ended, machine.ends) == (1, [])


async def test_a_standard_input_is_fetched_and_is_no_link(machine: Machine) -> None:
    command = CommandSpec(
        7, Program(argv=("true",), stdin=an_input("read"), workdir="/data"), {}, owner=ADA
    )
    machine.executor.start(command)
    await machine.settled()
    [started] = machine.runner.started
    assert Path(started.stdin_path).read_text() == "read"
    assert (started.links, started.inputs_dir, started.program.workdir) == ((), "", "/data")


async def test_a_standard_input_stays_while_its_task_runs(machine: Machine) -> None:
    command = CommandSpec(7, Program(argv=("true",), stdin=an_input("read")), {}, owner=ADA)
    machine.executor.start(command)
    await machine.settled()
    [entry] = machine.cache._entries.values()
    assert entry.users == 1
    machine.runner.complete(Completion(7))
    assert entry.users == 0


async def test_what_tasks_of_a_parent_left_is_asked_for_and_linked(machine: Machine) -> None:
    files = (ParentFiles(name="parts", job_id=3),)
    machine.executor.start(
        CommandSpec(1, Program(argv=("true",), parent_files=files), {}, owner=ADA)
    )
    while not machine.runner.started:
        await asyncio.sleep(0)
    [command] = machine.runner.started
    [(name, path)] = command.links
    assert (name, list(Path(path).iterdir())) == ("parts", [])
    assert command.inputs_dir


async def test_files_that_nobody_knows_any_more_end_the_attempt(machine: Machine) -> None:
    files = (ParentFiles(name="parts", job_id=GONE),)
    machine.executor.start(
        CommandSpec(1, Program(argv=("true",), parent_files=files), {}, owner=ADA)
    )
    await machine.settled()
    [end] = machine.ends
    assert end.reason == "no-input: the pool has forgotten it"


async def test_an_attempt_inside_an_environment_starts_with_its_variables(
    machine: Machine,
) -> None:
    wanted = TaskEnvironment("science", "venv")
    machine.executor.start(CommandSpec(1, Program(argv=("true",), environment=wanted), {"A": "b"}))
    await machine.settled()
    [command] = machine.runner.started
    assert command.env == {"A": "b", "VIRTUAL_ENV": "/made/science"}
    assert command.program.environment is None


async def test_an_environment_is_left_when_the_attempt_has_ended(machine: Machine) -> None:
    wanted = TaskEnvironment("science", "venv", "numpy")
    machine.executor.start(CommandSpec(1, Program(argv=("true",), environment=wanted), {}))
    await machine.settled()
    assert machine.environments.left == []
    machine.runner.complete(Completion(1, 0))
    assert machine.environments.left == ["science"]


async def test_an_environment_that_cannot_be_prepared_ends_the_attempt_with_the_reason(
    machine: Machine,
) -> None:
    wanted = TaskEnvironment("broken", "venv")
    machine.executor.start(CommandSpec(1, Program(argv=("true",), environment=wanted), {}))
    await machine.settled()
    [end] = machine.ends
    assert (end.number, end.reason) == (1, "no-environment: broken: pip failed")
    assert not machine.runner.started
