"""What the core keeps of a job's story."""

from __future__ import annotations

import pytest
from poolkit import Desk

from kestrelctl.core import events as ev
from kestrelctl.core.jobs.story import MOST_DETAIL_CHARACTERS
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.records import HAPPENINGS, MAX_HAPPENINGS, Happening
from kestrelctl.core.model.result import Outcome


def told(desk: Desk, job_id: int = 1) -> list[tuple[int, str, str, str]]:
    """(task, what, worker, cause) of all that is durable."""
    found = [r for r in desk.records if isinstance(r, Happening) and r.job_id == job_id]
    assert {happening.what for happening in found} <= set(HAPPENINGS)
    return [(h.index, h.what, h.worker, h.cause) for h in found]


def test_of_tasks_that_simply_run_nothing_is_kept() -> None:
    desk = Desk()
    desk.join("w", cpus=2)
    desk.submit(4)
    desk.finish_all()
    assert told(desk) == []


def test_a_failure_is_told_when_the_task_runs_again_and_not_when_it_ends_the_task() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(max_failures=2)
    desk.fail("w")
    assert told(desk) == [(0, "failed", "w", "")]
    desk.wait(10.0)
    desk.fail("w")
    assert desk.ended == [1]
    assert len(told(desk)) == 1, "the end is in the task's own row"


@pytest.mark.parametrize(
    ("code", "signal", "reason", "detail"),
    [(3, 0, "", "exit code 3"), (0, 9, "", "signal 9"), (0, 9, "time-limit", "time-limit")],
)
def test_a_failure_says_how_it_failed(code: int, signal: int, reason: str, detail: str) -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(max_failures=2)
    desk.fail("w", exit_code=code, signal=signal, reason=reason)
    [happening] = [r for r in desk.records if isinstance(r, Happening)]
    assert happening.detail == detail


def test_a_loss_says_why_and_that_the_attempt_was_found_again() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    [attempt] = desk.held("w")
    desk.lose("w")
    desk.join("w", holds=[attempt])
    assert told(desk) == [(0, "lost", "w", "unavailable"), (0, "found-again", "w", "")]


def test_a_repetition_that_is_stopped_is_superseded() -> None:
    desk = Desk()
    desk.join("first")
    desk.submit()
    [attempt] = desk.held("first")
    desk.lose("first")
    desk.join("second")
    assert desk.jobs_at("second") == [1]
    desk.join("first", holds=[attempt])
    whats = [(what, worker) for _, what, worker, _ in told(desk)]
    assert whats == [("lost", "first"), ("superseded", "second"), ("found-again", "first")]


def test_what_the_pool_recalled_is_told_apart_from_what_was_given_back() -> None:
    desk = Desk(Config(stuck_seconds=0.5))
    desk.join("stuck")
    desk.submit(30)
    while desk.pool.state.demand:
        desk.report("stuck", seconds=0.01)
    desk.join("idle")
    desk.wait(1.0)
    last = desk.held("stuck")[-1]
    desk.tell(ev.Returned(at=desk.now, worker="stuck", numbers=[last[0]]))
    [running, *_] = desk.held("stuck")
    desk.tell(ev.Returned(at=desk.now, worker="stuck", numbers=[running[0]]))
    whats = [what for _, what, _, _ in told(desk)]
    assert whats == ["recalled", "given-back"]


def test_a_kill_that_nobody_wanted_is_told() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    desk.report("w", outcome=Outcome.KILLED)
    assert told(desk) == [(0, "killed", "w", "")]


def test_a_cancellation_and_a_retry_name_whoever_wanted_them() -> None:
    desk = Desk()
    desk.submit(3)
    cancel = ev.Cancel(at=desk.now, cause="ada/home", request="c", by="ada", admin=False, job_id=1)
    desk.tell(cancel)
    desk.retry(1)
    assert told(desk)[0] == (-1, "cancelled", "", "ada/home")
    assert [(index, what) for index, what, _, _ in told(desk)[1:]] == [(-1, "retried")]


def test_a_story_is_bounded_over_restarts() -> None:
    desk = Desk(Config(backoff_seconds=0.0, max_backoff_seconds=0.0, quarantine_failures=10**9))
    desk.join("w", cpus=500)
    desk.submit(500, max_failures=10)
    for _ in range(3):
        desk.fail("w", *desk.held("w"))
        desk.wait(0.1)
    desk.restart()
    desk.join("w", cpus=500, incarnation="two")
    desk.wait(5.0)
    for _ in range(3):
        desk.fail("w", *desk.held("w"))
        desk.wait(0.1)
    found = told(desk)
    assert len(found) == MAX_HAPPENINGS
    assert found[-1][:2] == (-1, "dropped")
    assert [what for _, what, _, _ in found].count("dropped") == 1


def test_a_story_is_bounded_over_retries() -> None:
    desk = Desk()
    desk.join("w")
    job_id = desk.submit()
    desk.fail("w")
    [record] = desk.store().jobs(ids=[job_id])
    desk.tell(
        ev.Retry(
            at=desk.now,
            request="r",
            by="ada",
            admin=False,
            job_id=job_id,
            record=record,
            indexes=[(0, "failed")],
            rest=True,
            happenings=MAX_HAPPENINGS,
        )
    )
    assert desk.answers[-1].tasks == 1
    assert told(desk) == []


def test_of_a_reason_only_the_beginning_is_kept() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(max_failures=2)
    desk.fail("w", reason="x" * 1000)
    [happening] = [r for r in desk.records if isinstance(r, Happening)]
    assert happening.detail == "x" * MOST_DETAIL_CHARACTERS
