"""Attempts from what they need to their end, with programs that run until the test ends them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from inputkit import ADA, Share, an_input

from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.errors import FileExpired
from kestrelctl.worker.addresses.address_reader import AddressReader
from kestrelctl.worker.connection.parent_file_questions import Left, ParentFilesGone
from kestrelctl.worker.environments.task_environments import EnvironmentRefused, Inside
from kestrelctl.worker.files.input_cache import InputCache
from kestrelctl.worker.files.preparation import Preparation
from kestrelctl.worker.launch.launcher import Events, Order, ProgramEnded, Started, Tree
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.run import process_executor
from kestrelctl.worker.run.executor import CommandSpec, Completion
from kestrelctl.worker.run.process_executor import ProcessExecutor

#: A job that the pool has forgotten.
GONE = 9


class Programs:
    """A `Launcher` whose programs run until the test ends them.

    Attributes:
        orders: what was started, in order.
        signals: (number, signal).
        broken: whether starts fail.
    """

    name = "fake"

    def __init__(self, sandboxes: OwnDirectory, tree: Tree, events: Events) -> None:
        self._sandboxes = sandboxes
        self._events = events
        self._loop = asyncio.get_running_loop()
        self.orders: list[Order] = []
        self.signals: list[tuple[int, int]] = []
        self.broken = self.closed = False

    def start(self, order: Order) -> None:
        if self.broken:
            raise RuntimeError("no threads")
        self.orders.append(order)
        started = Started(order.number, 1, time.time(), time.monotonic(), 0.0)
        self._loop.call_soon(self._events.on_started, started)

    def end(self, number: int) -> None:
        """A program exits with 0."""
        self._events.on_ended(ProgramEnded(number, 0, time.monotonic(), 0.0, 0, False))

    def links_of(self, order: Order) -> dict[str, Path]:
        """Where the links lead that a program finds in its scratch directory, by name."""
        scratch = Path(self._sandboxes.path, order.sandbox, "scratch")
        return {each.name: each.readlink() for each in scratch.iterdir() if each.is_symlink()}

    def begin(self, number: int) -> None:
        raise AssertionError("nothing waits here")

    withdraw = begin

    def signal(self, number: int, signal_number: int) -> None:
        self.signals.append((number, signal_number))

    def kill(self, number: int) -> None:
        self.signals.append((number, 9))

    def hear(self) -> None:
        pass

    def orphans_of(self, number: int) -> list[int]:
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
        self.executor = ProcessExecutor(
            directory / "tasks",
            self.ends.append,
            launch=self._launch,
            preparation=lambda: Preparation(
                InputCache(directory / "inputs", 12, self.share.get, AddressReader(), "pool"),
                self._find,
                self.environments.inside,
            ),
        )
        assert self.executor.inputs is not None
        self.cache = self.executor.inputs

    def _launch(self, sandboxes: OwnDirectory, tree: Tree, events: Events) -> Programs:
        self.programs = Programs(sandboxes, tree, events)
        return self.programs

    async def _find(self, number: int, files: ParentFiles) -> Left:
        if files.job_id == GONE:
            raise ParentFilesGone(EndKind.NO_INPUT, "the pool has forgotten it")
        assert number == 1
        return ()

    def start(self, number: int, *texts: str) -> None:
        """Starts an attempt of Ada's whose inputs have these texts, and these names."""
        inputs = tuple(
            an_input(text, name=f"in{number}" if number else "in")
            for number, text in enumerate(texts)
        )
        self.executor.start(
            CommandSpec(number, Program(argv=("true",), inputs=inputs), {}, owner=ADA)
        )

    @property
    def started(self) -> list[int]:
        """The attempts that have been started, in order."""
        return [order.number for order in self.programs.orders]

    async def settled(self) -> None:
        """Returns when nothing more happens by itself."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    await machine.executor.close()


async def test_an_attempt_without_inputs_starts_at_once(machine: Machine) -> None:
    machine.start(1)
    assert machine.started == [1]


async def test_an_attempt_starts_when_its_inputs_are_there_and_finds_links_to_them(
    machine: Machine,
) -> None:
    machine.share.open.clear()
    machine.start(1, "alpha")
    machine.start(2)
    await machine.settled()
    assert machine.started == [2], "others do not wait"
    machine.share.open.set()
    await machine.settled()
    [(name, path)] = machine.programs.links_of(machine.programs.orders[1]).items()
    assert (name, path.read_text()) == ("in", "alpha")
    assert path.is_relative_to(machine.cache.directory_of(ADA))


async def test_what_an_attempt_uses_is_kept_until_it_has_ended(machine: Machine) -> None:
    machine.start(1, "alpha", "bravo")
    await machine.settled()
    machine.start(2, "cargo")
    await machine.settled()
    [end] = machine.ends
    assert end.number == 2
    assert "does not fit into the worker's cache now" in end.reason
    machine.programs.end(1)
    machine.start(3, "cargo")
    await machine.settled()
    assert machine.started == [1, 3]


async def test_what_was_told_of_a_running_task_counts_at_its_end(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts children for nobody whose parent had no time to wait for them."""
    machine.start(1)
    await machine.settled()
    monkeypatch.setattr(process_executor, "used_now", lambda pids: (5.0, 1))
    assert machine.executor.used([1]) == {1: (5.0, 1)}
    machine.programs.end(1)
    await machine.settled()
    [end] = machine.ends
    assert end.cpu_seconds == 5.0


async def test_what_cannot_be_had_ends_the_attempt_with_the_reason(machine: Machine) -> None:
    machine.share.errors = [FileExpired("the file has expired")]
    machine.start(1, "alpha")
    await machine.settled()
    [end] = machine.ends
    assert (end.number, end.exit_code) == (1, None)
    assert end.reason == "no-input: 'in': the file has expired"
    assert machine.started == []
    machine.start(1, "alpha")  # the number is free again
    await machine.settled()
    assert machine.started == [1]


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
    assert machine.started == []


async def test_one_that_runs_is_asked_to_end(machine: Machine) -> None:
    machine.start(1, "alpha")
    await machine.settled()
    assert machine.executor.kill(1, "time-limit")
    assert machine.programs.signals == [(1, signal.SIGTERM)]
    machine.programs.end(1)
    assert [(end.number, end.reason) for end in machine.ends] == [(1, "time-limit")]


async def test_a_number_in_use_is_refused(machine: Machine) -> None:
    machine.share.open.clear()
    machine.start(1, "alpha")
    with pytest.raises(ValueError, match="runs already"):
        machine.start(1, "alpha")


async def test_a_start_that_fails_ends_the_attempt(machine: Machine) -> None:
    machine.programs.broken = True
    machine.start(1, "alpha")
    await machine.settled()
    [end] = machine.ends
    assert end.reason.startswith("no-resources: ")
    machine.programs.broken = False
    machine.start(2, "alpha", "bravo")
    await machine.settled()
    assert len(machine.share.gets) == 2


async def test_a_close_ends_what_is_under_way_and_reports_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.share.open.clear()
    machine.start(1, "alpha")
    await machine.settled()
    await machine.executor.close()
    assert machine.programs.closed
    assert (machine.share.ended, machine.ends) == (1, [])


async def test_a_standard_input_is_fetched_and_is_no_link(machine: Machine) -> None:
    command = CommandSpec(7, Program(argv=("true",), stdin=an_input("read")), {}, owner=ADA)
    machine.executor.start(command)
    await machine.settled()
    [order] = machine.programs.orders
    assert Path(order.stdin_path).read_text() == "read"
    assert machine.programs.links_of(order) == {}


async def test_a_standard_input_stays_while_its_task_runs(machine: Machine) -> None:
    command = CommandSpec(7, Program(argv=("true",), stdin=an_input("read")), {}, owner=ADA)
    machine.executor.start(command)
    await machine.settled()
    [entry] = machine.cache._entries.values()
    assert entry.users == 1
    machine.programs.end(7)
    assert entry.users == 0


async def test_what_tasks_of_a_parent_left_is_asked_for_and_linked(machine: Machine) -> None:
    files = (ParentFiles(name="parts", job_id=3),)
    machine.executor.start(
        CommandSpec(1, Program(argv=("true",), parent_files=files), {}, owner=ADA)
    )
    while not machine.started:
        await asyncio.sleep(0)
    [order] = machine.programs.orders
    [(name, path)] = machine.programs.links_of(order).items()
    assert (name, list(path.iterdir())) == ("parts", [])


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
    [order] = machine.programs.orders
    assert order.launch.env.items() >= {"A": "b", "VIRTUAL_ENV": "/made/science"}.items()


async def test_an_environment_is_left_when_the_attempt_has_ended(machine: Machine) -> None:
    wanted = TaskEnvironment("science", "venv", "numpy")
    machine.executor.start(CommandSpec(1, Program(argv=("true",), environment=wanted), {}))
    await machine.settled()
    assert machine.environments.left == []
    machine.programs.end(1)
    assert machine.environments.left == ["science"]


async def test_an_environment_that_cannot_be_prepared_ends_the_attempt_with_the_reason(
    machine: Machine,
) -> None:
    wanted = TaskEnvironment("broken", "venv")
    machine.executor.start(CommandSpec(1, Program(argv=("true",), environment=wanted), {}))
    await machine.settled()
    [end] = machine.ends
    assert (end.number, end.reason) == (1, "no-environment: broken: pip failed")
    assert machine.started == []
