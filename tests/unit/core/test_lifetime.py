"""Workers that leave at a known time, and tasks that ask for time."""

from __future__ import annotations

import pytest
from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.job.ending_rules import problem_with_endings
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd


def join(
    driver: PoolDriver, name: str, ends_at: float | None, clock_ahead_seconds: float = 0.0
) -> None:
    driver.tell(
        ev.Joined(
            at=driver.now,
            worker=name,
            incarnation="one",
            ad=WorkerAd(ends_at=ends_at),
            said_at=driver.now + clock_ahead_seconds,
            holds=[],
        )
    )


def test_a_task_goes_to_a_worker_that_stays_long_enough() -> None:
    driver = PoolDriver()
    join(driver, "short", ends_at=driver.now + 1000.0)
    driver.submit(2, time_request_seconds=1200.0)
    assert driver.held("short") == []
    join(driver, "long", ends_at=driver.now + 1201.0)
    assert len(driver.held("long")) == 1
    driver.now += 2.0
    driver.report("long")
    assert driver.held("long") == [], "meanwhile it leaves too early, too"
    join(driver, "stays", ends_at=None)
    assert len(driver.held("stays")) == 1


def test_a_task_that_asks_for_no_time_goes_anywhere() -> None:
    driver = PoolDriver()
    join(driver, "w", ends_at=driver.now + 1.0)
    driver.submit()
    assert len(driver.held("w")) == 1


@pytest.mark.parametrize(("ahead_seconds", "fits"), [(0.0, True), (300.0, False)])
def test_a_lifetime_is_told_by_the_clock_of_the_worker(ahead_seconds: float, fits: bool) -> None:
    driver = PoolDriver()
    join(driver, "w", ends_at=driver.now + 1300.0, clock_ahead_seconds=ahead_seconds)
    driver.submit(time_request_seconds=1200.0)
    assert bool(driver.held("w")) is fits


@pytest.mark.parametrize("ahead_seconds", [864_000.0, -864_000.0])
def test_a_clock_that_is_set_changes_no_lifetime(ahead_seconds: float) -> None:
    """That of the worker's machine: what it reports of its tasks is by the clock as it is set."""
    driver = PoolDriver()
    join(driver, "w", ends_at=driver.now + 1300.0)
    driver.submit()
    [(number, job, index)] = driver.held("w")
    began_at = driver.now + ahead_seconds
    driver.now += 1.0
    result = Result(number, job, index, Outcome.DONE, began_at, 0.5)
    driver.tell(ev.Reported(at=driver.now, worker="w", results=[result], seals=[]))
    assert driver.worker("w").remaining_seconds(driver.now) == pytest.approx(1299.0)


def test_explain_and_census_say_that_workers_leave_too_early() -> None:
    driver = PoolDriver()
    join(driver, "w", ends_at=driver.now + 1000.0)
    job = driver.submit(3, time_request_seconds=1200.0)
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now)
    [group] = found.groups
    assert group.refusal.reason is Reason.LIFETIME
    assert (group.refusal.wanted, group.refusal.found) == ("1200 s", "1000 s left")
    assert not found.ever
    assert driver.pool.census(driver.now).waiting[Reason.LIFETIME] == 3


def test_one_that_stays_and_is_busy_is_the_reason_to_wait() -> None:
    driver = PoolDriver()
    join(driver, "leaves", ends_at=driver.now + 1000.0)
    join(driver, "stays", ends_at=None)
    driver.submit(2, time_request_seconds=1200.0)
    assert driver.held("leaves") == []
    assert driver.pool.census(driver.now).waiting[Reason.BUSY] == 1


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"time_request_seconds": 0.0}, "a time request is"),
        ({"time_request_seconds": float("nan")}, "a time request is"),
        ({"time_request_seconds": 20.0, "time_limit_seconds": 10.0}, "than its time limit"),
    ],
)
def test_time_requests_that_cannot_be_are_refused(rules: dict[str, float], word: str) -> None:
    assert word in (problem_with_endings(job_spec(**rules)) or "")
