"""What a session tells the pool of checkpoints, and what it does when the pool wants some."""

from __future__ import annotations

from typing import cast

from kestrelctl.core.agent.agent import Agent, LocalAttempt
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.checkpoint import DEFAULT_SECONDS, MadeCheckpoint
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import Template
from kestrelctl.protocol import workers
from kestrelctl.worker.connection.checkpoints import SessionCheckpoints
from kestrelctl.worker.run.executor import Executor

TEMPLATE = Template(
    job_id=1,
    program=Program(argv=("true",), checkpoints=("state",), checkpoint_exit=85),
    count=9,
)


def made(n: int) -> MadeCheckpoint:
    return MadeCheckpoint(n, StoredFile(sha256="0" * 64, size_bytes=0, pieces=()))


class Desk:
    """A session with room for two attempts, and an executor that notes what is wanted of it."""

    def __init__(self) -> None:
        self.agent = Agent({"cpus": 2.0})
        self.agent.holds()
        self.agent.on_welcome(1, (), 0.0, 0.0)
        self.sent: list[workers.Message] = []
        self.taken: list[tuple[int, bool]] = []
        self.checkpoints = SessionCheckpoints(
            self.agent, lambda: cast(Executor, self), self.sent.append
        )

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        self.taken.append((number, stop))

    def runs(self, n: int, given: MadeCheckpoint | None = None) -> list[LocalAttempt]:
        """So many attempts come, with the numbers from 11; those that fit start."""
        checkpoints = [(11, given)] if given is not None else []
        spans = [(11, 1, 0, n, 0, 5)]
        self.agent.on_run(spans, [{"cpus": 1000}], [TEMPLATE], (), (), 0.0, checkpoints=checkpoints)
        found = []
        while (attempt := self.agent.start_next(0.0)) is not None:
            found.append(attempt)
        return found


def test_an_attempt_is_given_what_came_with_it() -> None:
    desk = Desk()
    first, second = desk.runs(2, made(4))
    order = desk.checkpoints.order(first)
    assert (order.given, order.globs, order.exit_code) == (made(4), ("state",), 85)
    assert order.every_seconds == DEFAULT_SECONDS
    assert desk.checkpoints.order(second).given is None


def test_the_pool_is_told_of_each() -> None:
    desk = Desk()
    [attempt] = desk.runs(1)
    desk.checkpoints.order(attempt).told(made(1), "")
    assert desk.sent == [workers.StoredCheckpoint(number=11, made=made(1))]


def test_the_latest_of_each_attempt_is_said_again_after_a_welcome() -> None:
    desk = Desk()
    first, second = desk.runs(2)
    desk.checkpoints.order(first).told(made(1), "")
    desk.agent.welcomed = False
    desk.checkpoints.order(first).told(made(2), "")
    desk.checkpoints.order(second).told(None, "gone")
    desk.sent.clear()
    desk.checkpoints.on_welcome()
    assert desk.sent == [
        workers.StoredCheckpoint(number=11, made=made(2)),
        workers.StoredCheckpoint(number=12, problem="gone"),
    ]


def test_of_one_that_has_ended_nothing_is_said() -> None:
    desk = Desk()
    [attempt] = desk.runs(1)
    order = desk.checkpoints.order(attempt)
    order.told(made(1), "")
    desk.sent.clear()
    del desk.agent.running[11]
    desk.checkpoints.ended(11)
    order.told(made(2), "")
    desk.checkpoints.on_welcome()
    assert desk.sent == []


def test_what_runs_is_stored_or_stopped() -> None:
    desk = Desk()
    desk.runs(2)
    desk.checkpoints.on_take(workers.TakeCheckpoints(numbers=[11, 12, 99], stop=[12]))
    assert desk.taken == [(11, False), (12, True)]
    assert desk.sent == []


def test_what_waits_here_is_given_back() -> None:
    desk = Desk()
    desk.runs(3)
    desk.checkpoints.on_take(workers.TakeCheckpoints(numbers=[11, 12, 13], stop=[11, 12, 13]))
    assert desk.sent == [workers.Returned(numbers=[13])]
    assert desk.taken == [(11, True), (12, True)]
