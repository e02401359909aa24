"""What runs attempts of other pools as jobs of the own one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.agent.held_attempt import HeldAttempt
from kestrelctl.core.events import Cancel
from kestrelctl.core.model.end_reason import CANCELLED, NO_REASON, EndKind, ReasonText, in_stage
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.flock.service.guest_executor import GuestExecutor
from kestrelctl.flock.service.guest_jobs import completion_of
from kestrelctl.manager.service import Service
from kestrelctl.worker.run.executor import Completion


def guest_job(number: int) -> JobSpec:
    """A job for one attempt of another pool."""
    template = Template(job_id=1, program=Program(argv=("task",)))
    attempt = LocalAttempt(number, template, 0, None, Claim({}), (number, 1, 0, 1, 0), 0.0)
    memo = msgspec.json.encode(HeldAttempt.of(attempt, "flock@birch"))
    of = GuestOf(pool="alder", job_id=1, user="ada@users.alder", loan="0123456789ab", memo=memo)
    return JobSpec(program=Program(argv=("task",)), guest=of)


def after_a_restart(events: list[Any]) -> GuestExecutor:
    """One that knows attempt 7, which an earlier process of the manager has begun as job 3."""
    service = SimpleNamespace(handle=events.append, now=lambda: 1.0)
    unused: Any = None
    executor = GuestExecutor(
        cast(Service, service), "flock:alder", unused, unused, unused, unused, unused, unused, {}
    )
    executor.remember(3, guest_job(7))
    return executor


async def test_what_nobody_goes_on_with_after_a_restart_is_cancelled_here() -> None:
    """Otherwise its job would run to its end, and nobody would be told of it."""
    events: list[Any] = []
    executor = after_a_restart(events)
    assert executor.kill(7)
    assert executor.left() == []
    [cancelled] = events
    assert isinstance(cancelled, Cancel)
    assert cancelled.job_id == 3


@pytest.mark.parametrize("stored", [True, False])
async def test_how_a_guest_has_ended_is_told_when_the_store_answers(stored: bool) -> None:
    result = Result(3, 1, 0, Outcome.DONE, 1.0, 2.0)
    done = TaskRecord(3, 0, TaskState.DONE, 1, 0, "worker", result)
    answers, told = asyncio.Event(), list[Completion]()

    async def ask(question: Any) -> Any:
        await answers.wait()
        return question(SimpleNamespace(tasks=lambda job_id, limit: [done] if stored else []))

    service: Any = SimpleNamespace(
        store=SimpleNamespace(ask=ask), pool=SimpleNamespace(job=lambda job_id: None)
    )
    unused: Any = None
    nothing: Any = lambda *_: None  # noqa: E731
    executor = GuestExecutor(
        service, "flock:alder", told.append, unused, unused, nothing, nothing, unused, {}
    )
    executor.remember(3, guest_job(7))
    [command] = executor.left()
    executor.start(command)
    await asyncio.sleep(0)
    assert told == []
    answers.set()
    for _ in range(5):
        await asyncio.sleep(0)
    [end] = told
    assert (end.number, end.reason == CANCELLED) == (7, not stored)


class Carried:
    """One whose guest, attempt 7, has just ended and left files.

    Attributes:
        told: the ends that its home has heard.
    """

    def __init__(self, carry: Callable[[Completion], Awaitable[Completion]]) -> None:
        self.told: list[Completion] = []
        nothing: Any = lambda *_: None  # noqa: E731
        service: Any = SimpleNamespace(pool=SimpleNamespace(job=lambda job_id: object()))
        self.executor = GuestExecutor(
            service, "flock:alder", self.told.append, nothing, nothing, nothing, nothing, carry, {}
        )
        self.executor.remember(3, guest_job(7))
        [command] = self.executor.left()
        self.executor.start(command)
        left = StoredFile(sha256="0" * 64, size_bytes=5, pieces=())
        result = Result(3, 1, 0, Outcome.DONE, 1.0, 2.0, outputs=left)
        self.executor.ended(TaskRecord(3, 0, TaskState.DONE, 1, 0, "worker", result))

    async def hears(self) -> tuple[int, bool]:
        """The number of the attempt whose end is told at last, and whether it was cancelled."""
        for _ in range(5):
            await asyncio.sleep(0)
        [end] = self.told
        return end.number, end.reason == CANCELLED


@pytest.mark.parametrize("turns", range(4))
async def test_a_guest_that_is_ended_while_its_files_go_home_has_an_end(turns: int) -> None:
    carried = Carried(lambda end: asyncio.get_running_loop().create_future())
    for _ in range(turns):
        await asyncio.sleep(0)
    assert carried.executor.kill(7)
    assert await carried.hears() == (7, True)
    assert not carried.executor.kill(7), "it is over"


async def test_a_guest_whose_files_cannot_go_home_for_a_slip_has_an_end() -> None:
    async def slip(end: Completion) -> Completion:
        raise ValueError("no such address")

    assert await Carried(slip).hears() == (7, False)


def end_at_home(reason: str, exit_code: int, signal: int = 0) -> Completion:
    """How an attempt ends at its home of which a worker of the lender has reported so."""
    why = ReasonText(reason)
    result = Result(3, 1, 0, Outcome.FAILED, 1.0, 2.0, 0.0, 0.0, 0, exit_code, signal, why)
    record = TaskRecord(3, 0, TaskState.FAILED, 1, 0, "worker", result)
    return completion_of(7, record, NO_REASON, guest_job(7))


@pytest.mark.parametrize("kind", EndKind)
def test_each_reason_of_a_neighbour_s_worker_comes_home_as_it_is(kind: EndKind) -> None:
    end = end_at_home(kind.text("why"), 0)
    assert end.reason == kind.text("why")
    never = (EndKind.CANNOT_START, EndKind.NO_INPUT, EndKind.NO_ENVIRONMENT)
    assert end.exit_code == (None if kind in never else 0)


@pytest.mark.parametrize(("stage", "exit_code"), [("setup", None), ("in", None), ("out", 0)])
def test_what_failed_at_a_neighbour_before_its_command_has_no_exit_code(
    stage: str, exit_code: int | None
) -> None:
    assert end_at_home(in_stage(stage, "exit code 3"), 0).exit_code == exit_code


def test_what_a_signal_ended_at_a_neighbour_has_no_exit_code_whatever_the_reason() -> None:
    end = end_at_home(EndKind.MEMORY_LIMIT.text(), 0, signal=9)
    assert (end.exit_code, end.signal) == (None, 9)
