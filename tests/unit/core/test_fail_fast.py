"""A job that bears so many failed tasks and no more."""

from __future__ import annotations

import pytest
from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core.model.job.ending_rules import problem_with_endings
from kestrelctl.core.model.job.spec import Notify
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome


def job_row(driver: PoolDriver) -> JobRecord:
    return [record for record in driver.records if isinstance(record, JobRecord)][-1]


def test_what_waits_is_cancelled_and_what_runs_is_stopped() -> None:
    driver = PoolDriver()
    driver.join("v", "w")
    job = driver.submit(10, stop_after=2)
    driver.fail("w")
    assert not driver.pool.state.jobs[job].cancelling
    driver.fail("w")
    [(running, _, _)] = driver.held("v")
    assert [(kill.worker, kill.numbers) for kill in driver.of(fx.Kill)] == [("v", [running])]
    driver.report("v", outcome=Outcome.KILLED, reason="cancelled")
    row = job_row(driver)
    assert (driver.ended, row.state, row.stopped_by) == ([job], "failed", "failed tasks")
    assert row.counts == Counts(failed=2, cancelled=8)
    last = [record for record in driver.records if isinstance(record, TaskRecord)][-1]
    assert last.result is not None
    assert last.result.reason == "failed tasks"
    told = [r.cause for r in driver.records if isinstance(r, Happening) and r.what == "cancelled"]
    assert told == ["failed tasks"]


def test_attempts_that_are_tried_again_do_not_count() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2, stop_after=1, max_failures=3)
    for _ in range(2):
        driver.fail("w", driver.held("w")[0])
        driver.live(30.0)
    assert not driver.pool.state.jobs[job].cancelling


def test_successes_in_between_change_nothing() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10, stop_after=2)
    driver.fail("w")
    driver.report("w")
    driver.fail("w")
    assert job_row(driver).counts == Counts(done=1, failed=2, cancelled=7)


def test_a_task_that_is_lost_for_good_counts() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(3, stop_after=1, max_losses=1)
    driver.live(2.0)
    driver.lose("w")
    assert job_row(driver).counts == Counts(lost=1, cancelled=2)


def test_a_job_on_hold_is_stopped_as_well() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(3, stop_after=1)
    driver.hold(job)
    driver.fail("w")
    assert (driver.ended, job_row(driver).hold) == ([job], None)


def test_a_job_whose_last_task_failed_was_not_stopped() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(2, stop_after=2)
    driver.fail("w")
    driver.fail("w")
    assert (job_row(driver).state, job_row(driver).stopped_by) == ("failed", "")


def test_who_wants_to_hear_of_failures_hears_of_it() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(3, stop_after=1, notify=Notify.FAILURES)
    driver.fail("w")
    assert job_row(driver).untold


def test_it_is_stopped_though_the_manager_died_between_the_failure_and_the_stop() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(3, stop_after=1)
    driver.fail("w")
    failed = [isinstance(r, TaskRecord) and r.state is TaskState.FAILED for r in driver.records]
    del driver.records[failed.index(True) + 1 :]
    driver.ended.clear()
    driver.restart()
    assert driver.ended == [job]
    assert job_row(driver).counts == Counts(failed=1, cancelled=2)
    assert job_row(driver).ended_at == driver.now


def test_what_ran_meanwhile_is_stopped_when_its_worker_comes_back() -> None:
    driver = PoolDriver()
    driver.join("v", "w")
    driver.submit(3, stop_after=1)
    [attempt] = driver.held("v")
    driver.fail("w")
    failed = [isinstance(r, TaskRecord) and r.state is TaskState.FAILED for r in driver.records]
    del driver.records[failed.index(True) + 1 :]
    driver.restart()
    driver.join("v", holds=[attempt])
    assert [welcome.kill for welcome in driver.of(fx.Welcome)] == [[attempt[0]]]


def test_a_retry_brings_back_what_failed_and_what_was_stopped() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(4, stop_after=2)
    driver.fail("w")
    driver.fail("w")
    assert driver.retry(job).tasks == 4
    driver.fail("w")
    driver.report("w")
    driver.finish_all()
    assert job_row(driver).counts == Counts(done=3, failed=1)
    assert job_row(driver).stopped_by == ""


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"stop_after": 0}, "1 to 1,000,000,000 failed tasks"),
        ({"stop_after": 1_000_000_001}, "1 to 1,000,000,000 failed tasks"),
        ({"stop_after": 3, "service": True}, "never fails"),
        ({"stop_after": 3, "span": 2, "count": 2}, "when a member has failed"),
    ],
)
def test_numbers_that_cannot_be_are_refused(rules: dict[str, int], word: str) -> None:
    assert word in (problem_with_endings(job_spec(**rules)) or "")
