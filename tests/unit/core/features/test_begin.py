"""Nothing of a job starts before the moment that it names."""

from __future__ import annotations

from datetime import datetime

import pytest
from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.job.spec import Begin
from kestrelctl.errors import UsageError
from kestrelctl.grammar.deadline_words import parse_begin
from kestrelctl.grammar.job_options import OPTIONS
from kestrelctl.grammar.why_waiting import reason_text

DAY_SECONDS = 86_400.0


def driver_with_a_worker() -> PoolDriver:
    driver = PoolDriver()
    driver.join("w")
    return driver


def test_a_job_starts_when_its_moment_has_come_and_not_before() -> None:
    for moment in (Begin(seconds=60.0), Begin(at=PoolDriver().now + 60.0)):
        driver = driver_with_a_worker()
        driver.submit(3, begin=moment)
        driver.submit(1)
        assert [job for _, job, _ in driver.held("w")] == [2], "others do not wait for it"
        driver.report("w")
        assert driver.pool.wake_at(driver.now) is not None
        driver.live(59.0)
        assert driver.held("w") == []
        driver.live(2.0)
        assert [job for _, job, _ in driver.held("w")] == [1]


def test_explain_says_when_it_begins() -> None:
    driver = driver_with_a_worker()
    driver.submit(begin=Begin(seconds=3600.0))
    [job] = driver.pool.jobs
    reasons = driver.pool.explain(job, driver.now + 600.0).job_reasons
    assert [(each.reason, each.found) for each in reasons] == [("begin", "in 3,000 s")]
    assert reason_text(reasons[0]) == "it begins in 3,000 s"


def test_a_moment_that_is_over_holds_nothing_back() -> None:
    driver = driver_with_a_worker()
    driver.submit(begin=Begin(at=driver.now - DAY_SECONDS))
    assert len(driver.held("w")) == 1


def test_a_restart_forgets_no_moment() -> None:
    driver = driver_with_a_worker()
    driver.submit(begin=Begin(seconds=60.0))
    driver.wait(30.0)
    driver.restart()
    driver.join("w")
    driver.live(29.0)
    assert driver.held("w") == []
    driver.live(2.0)
    assert len(driver.held("w")) == 1


@pytest.mark.parametrize("ahead_seconds", [DAY_SECONDS, -DAY_SECONDS])
def test_a_named_moment_follows_a_clock_that_is_set_and_a_while_does_not(
    ahead_seconds: float,
) -> None:
    driver = driver_with_a_worker()
    driver.submit(begin=Begin(at=driver.now + DAY_SECONDS))
    driver.submit(begin=Begin(seconds=60.0))
    driver.tell(ev.ClockSet(at=driver.now, cause="clock", ahead_seconds=ahead_seconds))
    assert [job for _, job, _ in driver.held("w")] == ([1] if ahead_seconds > 0 else [])


def test_what_never_could_run_is_refused() -> None:
    driver = driver_with_a_worker()
    driver.submit(begin=Begin(seconds=60.0), deadline_seconds=60.0)
    assert driver.answers[-1].message == "the job would be stopped before it begins"
    driver.submit(begin=Begin(at=1e300))
    assert driver.answers[-1].message == "a job begins within ten years"
    assert not driver.pool.jobs
    driver.submit(begin=Begin(seconds=60.0), deadline_seconds=61.0)
    assert driver.pool.jobs


def test_a_job_that_is_cancelled_before_it_begins_ends_at_once() -> None:
    driver = driver_with_a_worker()
    driver.submit(5, begin=Begin(seconds=60.0))
    driver.cancel(1)
    assert driver.ended == [1]
    driver.live(61.0)
    assert driver.held("w") == []


def test_it_is_read_as_other_systems_write_it() -> None:
    assert parse_begin("now+1hour") == parse_begin("1h") == Begin(seconds=3600.0)
    assert parse_begin("now") == Begin(seconds=0.0)
    local = datetime(2030, 12, 24, 18, 0).timestamp()
    assert parse_begin("2030-12-24T18:00") == Begin(at=local)
    with pytest.raises(UsageError, match="not a time to begin: '16:00'"):
        parse_begin("16:00")
    for words in ("soon", "now+2030-12-24T18:00", "now+", "20301224"):
        with pytest.raises(UsageError):
            parse_begin(words)


def test_it_is_shown_and_travels() -> None:
    [row] = [option.row for option in OPTIONS if option.name == "begin"]
    assert row is not None
    spec = job_spec(begin=Begin(seconds=3600.0))
    assert row.shows(spec) == "1h 00m after its submission"
    assert row.shows(job_spec()) == ""
