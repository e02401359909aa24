"""Services: copies that are started again whenever they end, moved, and scaled."""

from __future__ import annotations

from typing import Any

import pytest
from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.ending_rules import problem_with_endings
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.result import Outcome


def service(driver: PoolDriver, copies: int = 1, **rules: Any) -> int:
    return driver.submit(copies, service=True, **rules)


def scale(driver: PoolDriver, job_id: int, copies: int) -> fx.Answer:
    driver.tell(ev.ScaleService(at=driver.now, request="s", job_id=job_id, copies=copies))
    return driver.answers[-1]


def killed(driver: PoolDriver, name: str, *numbers: int) -> None:
    """A worker reports these attempts as killed; without any, those of the latest message."""
    wanted = numbers or tuple(n for kill in driver.of(fx.Kill) for n in kill.numbers)
    held = [attempt for attempt in driver.held(name) if attempt[0] in wanted]
    driver.report(name, *held, outcome=Outcome.KILLED, reason="cancelled")


def indexes(driver: PoolDriver, *names: str) -> list[int]:
    return sorted(index for name in names for _, _, index in driver.held(name))


@pytest.mark.parametrize(
    "how",
    [{"outcome": Outcome.DONE}, {"outcome": Outcome.FAILED, "exit_code": 1}],
)
def test_a_copy_that_ends_is_started_again(how: dict[str, int]) -> None:
    driver = PoolDriver()
    driver.join("w")
    service(driver)
    for _ in range(3):
        driver.report("w", seconds=0.1, **how)
        assert driver.held("w") == []
        driver.live(70.0)
        assert len(driver.held("w")) == 1
    assert driver.ended == []
    assert driver.pool.totals.attempts_failed == 0


def test_its_pauses_double_until_it_ran_for_a_while() -> None:
    driver = PoolDriver()
    driver.join("w")
    service(driver, backoff_seconds=2.0, max_backoff_seconds=5.0)
    pauses = []
    for seconds in (0.1, 0.1, 0.1, 100.0, 0.1):
        driver.report("w", seconds=seconds)
        ended_at = driver.now
        while not driver.held("w"):
            driver.live(0.5, step=0.5)
        pauses.append(driver.now - ended_at)
    assert pauses == [2.0, 4.0, 5.0, 2.0, 4.0]


def test_lost_workers_do_not_end_a_service() -> None:
    driver = PoolDriver()
    service(driver, max_losses=1)
    for _ in range(3):
        driver.join("w")
        assert len(driver.held("w")) == 1
        driver.lose("w")
        driver.live(70.0)
    assert driver.ended == []


@pytest.mark.parametrize("leaves", [False, True])
def test_a_copy_is_moved_when_its_worker_drains(leaves: bool) -> None:
    driver = PoolDriver()
    driver.join("a")
    service(driver)
    driver.join("b")
    if leaves:
        driver.tell(ev.Leaving(at=driver.now, worker="a"))
    else:
        driver.tell(ev.Drain(at=driver.now, worker="a", by="admin"))
    assert [kill.worker for kill in driver.of(fx.Kill)] == ["a"]
    killed(driver, "a")
    assert indexes(driver, "b") == [0]


def test_a_copy_keeps_its_grace_when_its_worker_drains_and_then_leaves() -> None:
    """A second request to end would end it at once."""
    driver = PoolDriver()
    driver.join("a")
    service(driver)
    driver.tell(ev.Drain(at=driver.now, worker="a", by="admin"))
    assert driver.of(fx.Kill)
    for again in (
        ev.Drain(at=driver.now, worker="a", by="admin"),
        ev.Leaving(at=driver.now, worker="a"),
    ):
        driver.tell(again)
        assert not driver.of(fx.Kill)


def test_a_plain_task_is_not_stopped_by_a_drain() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    driver.tell(ev.Drain(at=driver.now, worker="a", by="admin"))
    assert not driver.of(fx.Kill)


def test_a_worker_that_drained_before_a_restart_is_told_to_stop_its_copies() -> None:
    driver = PoolDriver()
    driver.join("a")
    service(driver)
    held = driver.held("a")
    driver.tell(ev.Drain(at=driver.now, worker="a", by="admin"))
    driver.restart()
    driver.join("a", holds=held)
    [welcome] = driver.of(fx.Welcome)
    assert welcome.kill == [held[0][0]]


def test_a_service_shrinks_from_its_end_and_grows_again() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=10)
    job = service(driver, 4)
    assert indexes(driver, "w") == [0, 1, 2, 3]
    assert scale(driver, job, 2).tasks == 2
    killed(driver, "w")
    assert indexes(driver, "w") == [0, 1]
    assert driver.pool.state.jobs[job].counts == Counts(cancelled=2)
    assert scale(driver, job, 6).tasks == 4
    assert indexes(driver, "w") == [0, 1, 2, 3, 4, 5]
    assert driver.pool.state.jobs[job].counts == Counts()
    [run] = driver.of(fx.Run)
    assert [template.count for template in run.templates] == [6], "tasks know how many there are"
    assert scale(driver, job, 6).tasks == 0


def test_copies_that_wait_are_stopped_at_once() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1)
    job = service(driver, 5)
    scale(driver, job, 1)
    assert not driver.of(fx.Kill)
    assert driver.pool.state.jobs[job].remaining == 1
    scale(driver, job, 3)
    driver.join("v", cpus=4)
    assert indexes(driver, "w", "v") == [0, 1, 2]


def test_a_scale_outlasts_the_manager() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=10)
    job = service(driver, 3)
    scale(driver, job, 5)
    scale(driver, job, 4)
    driver.restart()
    driver.join("w", cpus=10, incarnation="two")
    driver.live(5.0)
    assert indexes(driver, "w") == [0, 1, 2, 3]
    assert driver.pool.state.jobs[job].spec.count == 5


def test_a_service_ends_when_it_is_cancelled() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = service(driver, 2)
    driver.cancel(job)
    killed(driver, "w")
    assert driver.ended == [job]


def test_an_end_that_comes_late_does_not_disturb_the_copy_that_runs() -> None:
    driver = PoolDriver()
    driver.join("a")
    service(driver)
    [first] = driver.held("a")
    driver.lose("a")
    driver.join("b")
    driver.live(6.0)
    [second] = driver.held("b")
    driver.join("a", incarnation="one")
    driver.report("a", first)
    assert driver.held("b") == [second]


@pytest.mark.parametrize(
    ("copies", "rules", "code"),
    [
        (0, {}, "usage"),
        (100_001, {}, "usage"),
        (3, {"service": False}, "usage"),
        (3, {"items": ("a",)}, "usage"),
    ],
)
def test_what_cannot_be_scaled_is_refused(copies: int, rules: dict[str, Any], code: str) -> None:
    driver = PoolDriver()
    job = driver.submit(**({"service": True} | rules))
    assert scale(driver, job, copies).error == code


def test_a_job_that_is_not_there_cannot_be_scaled() -> None:
    assert scale(PoolDriver(), 7, 3).error == "not-found"


@pytest.mark.parametrize(
    "rules",
    [
        {"max_failures": 2},
        {"success_exits": ((3, 3),)},
        {"count": 100_001},
        {"count": 4, "further": ((10, 1, 2),)},
    ],
)
def test_rules_that_make_no_sense_for_a_service_are_refused(rules: dict[str, Any]) -> None:
    spec = job_spec(service=True, **rules)
    assert "service" in (problem_with_endings(spec) or "")
