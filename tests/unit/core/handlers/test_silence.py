"""Workers that have their turn seldom are not taken for stuck ones."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core.pool import Pool

SHORT = 0.01


def pool_where_two_report_every(seconds: float, *, ran: float = SHORT) -> PoolDriver:
    """Two workers of one process have short tasks, and report after so long; a third is idle."""
    driver = PoolDriver()
    driver.join("one", "two", incarnation="crowded")
    driver.submit(200)
    for name in ("one", "two") * 2:
        driver.report(name, seconds=SHORT)
    driver.now += seconds
    driver.report("one", seconds=ran)
    driver.report("two", seconds=SHORT)
    while driver.pool.state.demand:
        driver.report("one", seconds=SHORT)
    driver.report("two", seconds=SHORT)
    driver.join("idle", incarnation="roomy")
    return driver


def seconds_until_recall(driver: PoolDriver) -> float:
    began = driver.now
    while not any(worker.recalls for worker in driver.pool.state.workers.values()):
        driver.live(0.1, step=0.1)
        assert driver.now < began + 60.0
    return driver.now - began


def test_without_a_habit_a_worker_is_soon_taken_for_stuck() -> None:
    driver = pool_where_two_report_every(0.05)
    assert seconds_until_recall(driver) == pytest.approx(0.5, abs=0.2)


def test_who_is_often_silent_is_left_its_tasks_for_twice_as_long() -> None:
    driver = pool_where_two_report_every(4.0)
    assert 4.0 < seconds_until_recall(driver) < 8.0


def test_a_habit_is_forgotten() -> None:
    driver = pool_where_two_report_every(4.0)
    silence = driver.worker("one").silence
    assert not silence.is_stuck(silence.since + 3.0, 0.5)
    silence.begin(silence.since + 60.0)
    assert silence.is_stuck(silence.since + 3.0, 0.5)


def test_a_long_task_explains_a_silence() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(2)
    driver.now += 30.0
    driver.report("w", seconds=30.0)
    assert driver.worker("w").silence.is_stuck(driver.now + 0.6, 0.5)


def test_a_task_that_ran_for_less_than_no_time_makes_no_habit() -> None:
    driver = PoolDriver()
    driver.join("liar")
    driver.submit(2)
    driver.now += 0.1
    driver.report("liar", seconds=-1e12)
    assert driver.worker("liar").silence.is_stuck(driver.now + 0.6, 0.5)


def test_who_has_nothing_to_do_makes_no_habit() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(1)
    held = driver.held("w")
    driver.report("w", seconds=SHORT)
    driver.live(3600.0, step=5.0)
    driver.report("w", *held, seconds=SHORT)
    assert driver.worker("w").silence.is_stuck(driver.now + 0.6, 0.5)


def test_a_habit_is_that_of_a_process() -> None:
    driver = pool_where_two_report_every(4.0)
    driver.join("three", incarnation="crowded")
    driver.join("nameless", incarnation="")
    later = driver.now + 3.0
    assert not driver.worker("three").silence.is_stuck(later, 0.5)
    assert driver.worker("idle").silence.is_stuck(later, 0.5)
    assert driver.worker("nameless").silence.is_stuck(later, 0.5)


def test_processes_that_have_gone_leave_nothing() -> None:
    driver = PoolDriver()
    for number in range(10):
        driver.join("w", incarnation=str(number))
    assert list(driver.pool.state.processes) == ["9"]


def test_a_large_pool_looks_more_seldom_for_what_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look takes as long as there are workers; it takes no larger part of the time for that."""
    looks: list[float] = []
    driver = PoolDriver()
    driver.join("one", "two", "three", "four")
    driver.submit(100)
    monkeypatch.setattr(Pool, "_recall", lambda pool, now: looks.append(now))
    driver.live(2.0, step=0.05)
    often = len(looks)
    monkeypatch.setattr("kestrelctl.core.pool.RECALL_ROUND_WORKERS", 1)
    driver.live(2.0, step=0.05)
    assert 0 < 2 * (len(looks) - often) < often
