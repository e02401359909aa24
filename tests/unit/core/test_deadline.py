"""What has not ended by the deadline of its job is stopped."""

from __future__ import annotations

from datetime import datetime

import pytest
from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.ending_rules import problem_with_endings
from kestrelctl.core.model.job.spec import Notify
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.errors import UsageError
from kestrelctl.grammar.deadline_words import Deadline, parse_deadline


def job_row(driver: PoolDriver) -> JobRecord:
    return [record for record in driver.records if isinstance(record, JobRecord)][-1]


def test_at_the_deadline_what_waits_and_what_runs_is_stopped() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(3, deadline_seconds=30.0)
    driver.report("w")
    driver.live(27.0)
    assert not driver.of(fx.Kill)
    assert driver.pool.wake_at(driver.now) is not None
    before = driver.held("w")
    driver.wait(3.0)
    assert [kill.numbers for kill in driver.of(fx.Kill)] == [[before[0][0]]]
    driver.report("w", outcome=Outcome.KILLED, reason="cancelled")
    row = job_row(driver)
    assert (row.state, row.stopped_by) == ("cancelled", "deadline")
    assert row.counts == Counts(done=1, cancelled=2)
    task = [record for record in driver.records if isinstance(record, TaskRecord)][-1]
    assert task.result is not None
    assert task.result.reason == "deadline"
    told = [r.cause for r in driver.records if isinstance(r, Happening) and r.what == "cancelled"]
    assert told == ["deadline"]


def test_a_deadline_may_be_a_moment() -> None:
    driver = PoolDriver()
    driver.submit(deadline_at=driver.now + 5.0)
    driver.wait(4.9)
    assert driver.ended == []
    driver.wait(0.2)
    assert driver.ended == [1]


DAY_SECONDS = 86_400.0
TEN_DAYS = 10 * DAY_SECONDS


def clock_is_set(driver: PoolDriver, ahead_seconds: float) -> None:
    driver.tell(ev.ClockSet(at=driver.now, cause="clock", ahead_seconds=ahead_seconds))


def test_a_moment_that_was_named_follows_a_clock_that_is_set_forward() -> None:
    driver = PoolDriver()
    driver.submit(deadline_at=driver.now + TEN_DAYS)
    clock_is_set(driver, TEN_DAYS - 60.0)
    assert driver.ended == []
    assert driver.pool.wake_at(driver.now) == driver.now + 60.0
    driver.wait(61.0)
    assert (driver.ended, job_row(driver).stopped_by) == ([1], "deadline")


def test_a_moment_that_was_named_is_over_at_once_if_the_clock_says_so() -> None:
    driver = PoolDriver()
    driver.submit(deadline_at=driver.now + 60.0)
    clock_is_set(driver, TEN_DAYS)
    assert driver.ended == [1]


def test_a_moment_that_was_named_waits_for_a_clock_that_is_set_back() -> None:
    driver = PoolDriver()
    driver.submit(deadline_at=driver.now + 60.0)
    clock_is_set(driver, -TEN_DAYS)
    driver.wait(TEN_DAYS)
    assert driver.ended == []
    driver.wait(61.0)
    assert driver.ended == [1]


@pytest.mark.parametrize("ahead_seconds", [TEN_DAYS, -TEN_DAYS])
def test_so_long_after_the_submission_is_so_long_however_the_clock_is_set(
    ahead_seconds: float,
) -> None:
    driver = PoolDriver()
    driver.submit(deadline_seconds=60.0)
    clock_is_set(driver, ahead_seconds)
    driver.wait(59.0)
    assert driver.ended == []
    driver.wait(2.0)
    assert driver.ended == [1]


def test_a_deadline_from_before_a_start_with_a_wrong_clock_follows_the_right_one() -> None:
    """The manager starts ten days late by its clock, which is then put right."""
    driver = PoolDriver()
    driver.submit(deadline_seconds=60.0)
    driver.now -= TEN_DAYS
    driver.restart()
    driver.wait(30.0)
    assert driver.ended == []
    clock_is_set(driver, TEN_DAYS)
    assert driver.ended == []
    driver.wait(31.0)
    assert driver.ended == [1]


def test_whether_a_moment_is_over_is_asked_of_the_machine_s_clock() -> None:
    driver = PoolDriver()
    clock_is_set(driver, TEN_DAYS)
    driver.submit(deadline_at=driver.now + DAY_SECONDS)
    assert driver.answers[-1].message == "the deadline was 777,600 s ago"
    assert driver.submit(deadline_at=driver.now + TEN_DAYS + 60.0)
    assert driver.pool.jobs


@pytest.mark.parametrize("ahead_seconds", [TEN_DAYS, -TEN_DAYS])
def test_no_duration_follows_a_clock_that_is_set(ahead_seconds: float) -> None:
    """No lease ends, no quarantine, no pause, no worker's time; nobody is taken for silent."""
    driver = PoolDriver()
    driver.join("w", "v", cpus=2)
    driver.submit(3, max_failures=2, backoff_seconds=30.0)
    driver.report("w", outcome=Outcome.FAILED)
    before = {name: driver.held(name) for name in ("w", "v")}
    clock_is_set(driver, ahead_seconds)
    driver.live(29.0)
    assert {name: driver.held(name) for name in ("w", "v")} == before
    assert all(worker.online for worker in driver.pool.workers.values())
    assert not driver.of(fx.Kill)
    driver.live(2.0)
    assert sum(len(driver.held(name)) for name in ("w", "v")) == 3


def test_a_deadline_outlasts_the_manager() -> None:
    driver = PoolDriver()
    driver.submit(deadline_seconds=30.0)
    driver.restart()
    driver.wait(31.0)
    assert (driver.ended, job_row(driver).stopped_by) == ([1], "deadline")


def test_that_a_deadline_stopped_it_outlasts_the_manager() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(deadline_seconds=3.0)
    driver.wait(3.0)
    driver.restart()
    driver.join("w", incarnation="two")
    driver.live(10.0)
    assert (driver.ended, job_row(driver).stopped_by) == ([1], "deadline")


def test_a_job_that_ended_in_time_has_no_reason() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(deadline_seconds=30.0)
    driver.report("w")
    driver.live(40.0)
    assert (driver.ended, job_row(driver).stopped_by) == ([job], "")


def test_a_cancel_before_the_deadline_is_a_cancel() -> None:
    driver = PoolDriver()
    job = driver.submit(deadline_seconds=30.0)
    driver.cancel(job)
    driver.live(40.0)
    assert job_row(driver).stopped_by == ""


def test_a_deadline_that_is_over_is_refused() -> None:
    driver = PoolDriver()
    driver.submit(deadline_at=driver.now - 10.0)
    assert driver.answers[-1].error == "usage"
    assert "10 s ago" in driver.answers[-1].message
    assert not driver.pool.jobs


def test_after_the_deadline_nothing_is_retried() -> None:
    driver = PoolDriver()
    job = driver.submit(deadline_seconds=3.0)
    driver.wait(4.0)
    answer = driver.retry(job)
    assert (answer.error, "deadline" in answer.message) == ("usage", True)


@pytest.mark.parametrize(
    ("notify", "untold"), [(Notify.FAILURES, True), (Notify.NEVER, False), (Notify.ALWAYS, True)]
)
def test_who_wants_to_hear_of_failures_hears_of_a_missed_deadline(
    notify: Notify, untold: bool
) -> None:
    driver = PoolDriver()
    driver.submit(deadline_seconds=3.0, notify=notify)
    driver.wait(4.0)
    assert job_row(driver).untold is untold


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"deadline_at": 5.0, "deadline_seconds": 5.0}, "not two"),
        ({"deadline_seconds": 0.0}, "10 years"),
        ({"deadline_seconds": float("nan")}, "10 years"),
        ({"deadline_at": float("inf")}, "10 years"),
    ],
)
def test_deadlines_that_cannot_be_are_refused(rules: dict[str, float], word: str) -> None:
    assert word in (problem_with_endings(job_spec(**rules)) or "")


def test_deadlines_are_durations_or_moments() -> None:
    assert parse_deadline("2h") == Deadline(seconds=7200.0)
    assert parse_deadline("2030-12-24T18:00+00:00") == Deadline(at=1924365600.0)
    local = datetime(2030, 12, 24, 18).timestamp()
    assert parse_deadline("2030-12-24 18:00") == Deadline(at=local)
    assert parse_deadline("1800") == parse_deadline("30m") == Deadline(seconds=1800.0)
    assert parse_deadline("2030s") == Deadline(seconds=2030.0)
    assert parse_deadline("now+2hours") == Deadline(seconds=7200.0)


@pytest.mark.parametrize("text", ["2030", "20301224", "1924365600"])
def test_a_year_a_date_or_seconds_since_1970_are_no_seconds_from_now(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_deadline(text)
    assert caught.value.hint == f"write {text}s, or a moment as 2030-12-24T18:00"


@pytest.mark.parametrize("text", ["", "soon", "2030-13-01", "0", "-5", "9999999-01-01"])
def test_what_is_no_deadline_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a deadline"):
        parse_deadline(text)


def test_the_pool_is_woken_for_a_deadline() -> None:
    driver = PoolDriver()
    driver.submit(deadline_seconds=30.0)
    driver.wait(5.0)
    assert driver.pool.wake_at(driver.now) == 1030.0
