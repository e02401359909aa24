"""What the core keeps of a job's story."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.jobs.story import MOST_DETAIL_CHARACTERS
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.records import HAPPENINGS, MAX_HAPPENINGS, Happening
from kestrelctl.core.model.result import Outcome


def told(driver: PoolDriver, job_id: int = 1) -> list[tuple[int, str, str, str]]:
    """(task, what, worker, cause) of all that is durable."""
    found = [r for r in driver.records if isinstance(r, Happening) and r.job_id == job_id]
    assert {happening.what for happening in found} <= set(HAPPENINGS)
    return [(h.index, h.what, h.worker, h.cause) for h in found]


def test_of_tasks_that_simply_run_nothing_is_kept() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(4)
    driver.finish_all()
    assert told(driver) == []


def test_of_a_job_that_is_cancelled_twice_that_is_told_once() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(10)
    driver.cancel(job)
    driver.cancel(job)
    assert [what for _, what, *_ in told(driver, job)] == ["cancelled"]


def test_a_failure_is_told_when_the_task_runs_again_and_not_when_it_ends_the_task() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(max_failures=2)
    driver.fail("w")
    assert told(driver) == [(0, "failed", "w", "")]
    driver.wait(10.0)
    driver.fail("w")
    assert driver.ended == [1]
    assert len(told(driver)) == 1, "the end is in the task's own row"


@pytest.mark.parametrize(
    ("code", "signal", "reason", "detail"),
    [(3, 0, "", "exit code 3"), (0, 9, "", "signal 9"), (0, 9, "time-limit", "time-limit")],
)
def test_a_failure_says_how_it_failed(code: int, signal: int, reason: str, detail: str) -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(max_failures=2)
    driver.fail("w", exit_code=code, signal=signal, reason=reason, seconds=2.5)
    [happening] = [r for r in driver.records if isinstance(r, Happening)]
    assert happening.detail == f"ran 2.500 s; {detail}"


def test_a_loss_says_why_and_that_the_attempt_was_found_again() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    [attempt] = driver.held("w")
    driver.lose("w")
    driver.join("w", holds=[attempt])
    assert told(driver) == [(0, "lost", "w", "unavailable"), (0, "found-again", "w", "")]


def test_a_repetition_that_is_stopped_is_superseded() -> None:
    driver = PoolDriver()
    driver.join("first")
    driver.submit()
    [attempt] = driver.held("first")
    driver.lose("first")
    driver.join("second")
    assert driver.jobs_at("second") == [1]
    driver.join("first", holds=[attempt])
    whats = [(what, worker) for _, what, worker, _ in told(driver)]
    assert whats == [("lost", "first"), ("superseded", "second"), ("found-again", "first")]


def test_what_the_pool_recalled_is_told_apart_from_what_was_given_back() -> None:
    driver = PoolDriver(Config(stuck_seconds=0.5))
    driver.join("stuck")
    driver.submit(30)
    while driver.pool.state.demand:
        driver.report("stuck", seconds=0.01)
    driver.join("idle")
    driver.wait(1.0)
    last = driver.held("stuck")[-1]
    driver.tell(ev.Returned(at=driver.now, worker="stuck", numbers=[last[0]]))
    [running, *_] = driver.held("stuck")
    driver.tell(ev.Returned(at=driver.now, worker="stuck", numbers=[running[0]]))
    whats = [what for _, what, _, _ in told(driver)]
    assert whats == ["recalled", "given-back"]


def test_a_kill_that_nobody_wanted_is_told() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.report("w", outcome=Outcome.KILLED)
    assert told(driver) == [(0, "killed", "w", "")]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (ev.Drain(at=1.0, worker="a", by="root@x"), "it was drained by root@x"),
        (ev.Leaving(at=1.0, worker="a"), "it is about to stop"),
    ],
)
def test_a_copy_of_a_service_that_leaves_a_worker_was_moved(event: ev.Event, why: str) -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(service=True)
    [attempt] = driver.held("a")
    driver.join("b")
    driver.tell(event)
    driver.report("a", outcome=Outcome.KILLED, reason="cancelled")
    [happening] = [r for r in driver.records if isinstance(r, Happening)]
    assert told(driver) == [(0, "moved", "a", "")]
    assert (happening.number, happening.detail) == (attempt[0], why)
    assert driver.jobs_at("b") == [1]
    driver.report("b", outcome=Outcome.KILLED)
    assert told(driver)[1:] == [(0, "killed", "b", "")]


def test_a_copy_is_moved_from_a_worker_that_still_drains_after_a_restart() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(service=True)
    held = driver.held("a")
    driver.tell(ev.Drain(at=driver.now, worker="a", by="root"))
    driver.restart()
    driver.join("a", holds=held)
    driver.report("a", outcome=Outcome.KILLED, reason="cancelled")
    [happening] = [r for r in driver.records if isinstance(r, Happening)]
    assert (happening.what, happening.detail) == ("moved", "it is drained")


def test_a_cancellation_and_a_retry_name_whoever_wanted_them() -> None:
    driver = PoolDriver()
    driver.submit(3)
    cancel = ev.Cancel(at=driver.now, cause="ada/home", request="c", job_id=1)
    driver.tell(cancel)
    driver.retry(1)
    assert told(driver)[0] == (-1, "cancelled", "", "ada/home")
    assert [(index, what) for index, what, _, _ in told(driver)[1:]] == [(-1, "retried")]


@pytest.mark.parametrize(("count", "detail"), [(1, "1 task"), (2000, "2,000 tasks")])
def test_they_say_how_many_tasks_they_were_about(count: int, detail: str) -> None:
    driver = PoolDriver()
    driver.cancel(driver.submit(count))
    driver.retry(1)
    happenings = [r for r in driver.records if isinstance(r, Happening)]
    assert [(r.what, r.detail) for r in happenings] == [("cancelled", detail), ("retried", detail)]


def test_a_story_is_bounded_over_restarts() -> None:
    driver = PoolDriver(
        Config(backoff_seconds=0.0, max_backoff_seconds=0.0, quarantine_failures=10**9)
    )
    driver.join("w", cpus=500)
    driver.submit(500, max_failures=10)
    for _ in range(3):
        driver.fail("w", *driver.held("w"))
        driver.wait(0.1)
    driver.restart()
    driver.join("w", cpus=500, incarnation="two")
    driver.wait(5.0)
    for _ in range(3):
        driver.fail("w", *driver.held("w"))
        driver.wait(0.1)
    found = told(driver)
    assert len(found) == MAX_HAPPENINGS
    assert found[-1][:2] == (-1, "dropped")
    assert [what for _, what, _, _ in found].count("dropped") == 1


def test_a_story_is_bounded_over_retries() -> None:
    driver = PoolDriver()
    driver.join("w")
    job_id = driver.submit()
    driver.fail("w")
    [record] = driver.store().jobs(ids=[job_id])
    driver.tell(
        ev.Retry(
            at=driver.now,
            request="r",
            job_id=job_id,
            record=record,
            indexes=[(0, "failed")],
            rest=True,
            happenings=MAX_HAPPENINGS,
        )
    )
    assert driver.answers[-1].tasks == 1
    assert told(driver) == []


def test_of_a_reason_only_the_beginning_is_kept() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(max_failures=2)
    driver.fail("w", reason="x" * 1000)
    [happening] = [r for r in driver.records if isinstance(r, Happening)]
    assert happening.detail == ("ran 0.100 s; " + "x" * 1000)[:MOST_DETAIL_CHARACTERS]
