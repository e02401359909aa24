"""How far ahead workers are supplied, and what happens to supplies that are stuck."""

from __future__ import annotations

import tracemalloc

from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.attempts.hand_out import KNOWN_JOBS
from kestrelctl.core.model.worker.ad import WorkerAd


def stuck_in_a_long_one(driver: PoolDriver, **ad: object) -> list[int]:
    """Worker `stuck` has tasks queued behind one that does not end; returns their numbers."""
    driver.join("stuck", **ad)  # type: ignore[arg-type]
    driver.submit(40)
    while driver.pool.state.demand:
        driver.report("stuck", seconds=0.003)
    return [number for number, *_ in driver.held("stuck")[1:]]


def give_back(driver: PoolDriver, numbers: list[int]) -> None:
    driver.tell(ev.Returned(at=driver.now, worker="stuck", numbers=numbers))


def test_supplies_are_taken_back_though_something_waits_that_nobody_can_run() -> None:
    driver = PoolDriver()
    waiting = stuck_in_a_long_one(driver)
    driver.submit(requires=("abacus",))
    driver.join("idle")
    driver.wait(1.0)
    (wish,) = driver.of(fx.Recall)
    assert set(wish.numbers) <= set(waiting)


def test_they_are_left_alone_when_only_those_idle_who_cannot_run_them() -> None:
    driver = PoolDriver()
    driver.join("stuck", tags=["r"])
    driver.submit(30, requires=("r",))
    while driver.pool.state.demand:
        driver.report("stuck", seconds=0.01)
    driver.join("idle")
    driver.wait(1.0)
    assert not driver.of(fx.Recall)


def test_what_was_taken_back_does_not_return_to_the_stuck_worker() -> None:
    """The stuck one was there first, and in a class of its own that is looked at first."""
    driver = PoolDriver()
    waiting = stuck_in_a_long_one(driver, memory_bytes=1)
    driver.join("idle")
    rounds = 0
    while len(driver.held("stuck")) > 1:
        driver.wait(0.6)
        rounds += 1
        assert rounds < 20, "the same tasks go to and fro"
        for wish in driver.of(fx.Recall):
            give_back(driver, wish.numbers)
        while driver.held("idle"):
            driver.report("idle", seconds=0.01)
    assert len(waiting) > 2
    assert rounds <= 6


def test_a_worker_that_rested_is_not_stuck_when_it_gets_work_again() -> None:
    driver = PoolDriver()
    names = [f"w{n}" for n in range(10)]
    driver.join(*names)
    for name in names:
        driver.tell(ev.Drain(at=driver.now, worker=name, by="root"))
    driver.live(10.0)
    driver.join("teacher")
    driver.submit(300)
    driver.report("teacher", seconds=0.001)
    driver.lose("teacher")
    driver.tell(ev.Resume(at=driver.now, worker="w0"))
    assert len(driver.held("w0")) > 20, "it is filled in several rounds, all of them now"


def test_the_last_tasks_are_spread_evenly_over_unequal_machines_too() -> None:
    driver = PoolDriver()
    driver.join("teacher")
    driver.submit(101)
    driver.report("teacher", seconds=0.001)
    driver.pool.handle(ev.Lost(at=driver.now, worker="teacher", cause="unavailable"))
    for n in range(10):
        ad = WorkerAd(assets={"cpus": 1.0, "memory": 1000.0 + n})
        driver.pool.handle(
            ev.Joined(at=driver.now, worker=f"w{n}", incarnation="one", ad=ad, holds=[])
        )
        driver.pool.handle(ev.WorkerStored(at=driver.now, worker=f"w{n}"))
    driver.wait(0.0)
    shares = [len(driver.held(f"w{n}")) for n in range(10)]
    assert max(shares) <= 2 * min(shares)


def test_failures_teach_nothing_about_run_times() -> None:
    """Else a machine that fails at once would be supplied far ahead with tasks to fail."""
    driver = PoolDriver()
    driver.join("good", "bad")
    driver.submit(200, max_failures=99)
    driver.report("good", seconds=60.0)
    for _ in range(5):
        driver.fail("bad", seconds=0.001)
        assert len(driver.held("bad")) == 1
    assert driver.pool.state.jobs[1].mean_seconds == 60.0


def test_tasks_that_are_reported_together_count_as_one_each() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    job = driver.submit(8)
    driver.report("w", *driver.held("w"), seconds=3.0)
    assert driver.pool.state.jobs[job].mean_seconds == 3.0


def test_one_short_task_does_not_make_its_job_one_of_short_tasks() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(200)
    for _ in range(20):
        driver.report("w", seconds=60.0)
    driver.report("w", seconds=0.001)
    assert len(driver.held("w")) == 1


def test_the_mean_follows_what_tasks_take_now() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(200)
    driver.report("w", seconds=60.0)
    for _ in range(150):
        driver.report("w", seconds=0.5)
    mean = driver.pool.state.jobs[1].mean_seconds
    assert mean is not None
    assert 0.4 < mean < 0.7


def test_a_template_travels_to_a_worker_once() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    job = driver.submit(5)
    (run,) = driver.of(fx.Run)
    assert [template.job_id for template in run.templates] == [job]
    driver.report("w")
    (run,) = driver.of(fx.Run)
    assert run.templates == []
    driver.join("w", cpus=2, incarnation="two")
    (run,) = driver.of(fx.Run)
    assert [template.job_id for template in run.templates] == [job], "the new process knows nothing"


def test_a_worker_is_told_which_templates_it_may_forget() -> None:
    driver = PoolDriver()
    driver.join("w")
    forgotten: list[int] = []
    for _ in range(40):
        driver.submit()
        (run,) = driver.of(fx.Run)
        forgotten += run.forget
        driver.report("w")
    assert len(forgotten) == len(set(forgotten)) >= 20
    assert len(driver.worker("w").known_jobs) <= 17


def test_ten_million_tasks_take_no_memory_before_they_run() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8)
    tracemalloc.start()
    driver.submit(10_000_000)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes < 100_000


def test_supplies_that_have_just_come_are_not_taken_back() -> None:
    """The worker reported nothing for long because it had nothing to do."""
    driver = PoolDriver()
    driver.join("rested", "teacher")
    driver.tell(ev.Drain(at=driver.now, worker="rested", by="root"))
    driver.submit(6)
    driver.report("teacher", seconds=0.001)
    driver.live(10.0)
    driver.lose("teacher")
    driver.tell(ev.Resume(at=driver.now, worker="rested"))
    assert not driver.pool.state.demand, "it has all that there is"
    driver.join("idle")
    driver.wait(0.2)
    assert not driver.of(fx.Recall)
    driver.wait(1.0)
    assert len(driver.of(fx.Recall)) == 1


def test_a_worker_keeps_as_many_templates_as_it_may_and_those_that_it_needs() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    lasting = driver.submit()
    (running,) = driver.held("w")
    ended = []
    for _ in range(KNOWN_JOBS - 1):
        ended.append(driver.submit())
        (run,) = driver.of(fx.Run)
        assert run.forget == []
        driver.report("w", driver.held("w")[-1])
    driver.submit()
    (run,) = driver.of(fx.Run)
    assert run.forget == ended
    assert driver.held("w")[0] == running
    assert lasting in driver.worker("w").known_jobs
