"""How far ahead workers are supplied, and what happens to supplies that are stuck."""

from __future__ import annotations

import tracemalloc

from poolkit import Desk

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.attempts.hand_out import KNOWN_JOBS
from kestrelctl.core.model.ad import WorkerAd


def stuck_in_a_long_one(desk: Desk, **ad: object) -> list[int]:
    """Worker `stuck` has tasks queued behind one that does not end; returns their numbers."""
    desk.join("stuck", **ad)  # type: ignore[arg-type]
    desk.submit(40)
    while desk.pool.state.demand:
        desk.report("stuck", seconds=0.003)
    return [number for number, *_ in desk.held("stuck")[1:]]


def give_back(desk: Desk, numbers: list[int]) -> None:
    desk.tell(ev.Returned(at=desk.now, worker="stuck", numbers=numbers))


def test_supplies_are_taken_back_though_something_waits_that_nobody_can_run() -> None:
    desk = Desk()
    waiting = stuck_in_a_long_one(desk)
    desk.submit(requires=("abacus",))
    desk.join("idle")
    desk.wait(1.0)
    (wish,) = desk.of(fx.Recall)
    assert set(wish.numbers) <= set(waiting)


def test_they_are_left_alone_when_only_those_idle_who_cannot_run_them() -> None:
    desk = Desk()
    desk.join("stuck", tags=["r"])
    desk.submit(30, requires=("r",))
    while desk.pool.state.demand:
        desk.report("stuck", seconds=0.01)
    desk.join("idle")
    desk.wait(1.0)
    assert not desk.of(fx.Recall)


def test_what_was_taken_back_does_not_return_to_the_stuck_worker() -> None:
    """The stuck one was there first, and in a class of its own that is looked at first."""
    desk = Desk()
    waiting = stuck_in_a_long_one(desk, memory_bytes=1)
    desk.join("idle")
    rounds = 0
    while len(desk.held("stuck")) > 1:
        desk.wait(0.6)
        rounds += 1
        assert rounds < 20, "the same tasks go to and fro"
        for wish in desk.of(fx.Recall):
            give_back(desk, wish.numbers)
        while desk.held("idle"):
            desk.report("idle", seconds=0.01)
    assert len(waiting) > 2
    assert rounds <= 6


def test_a_worker_that_rested_is_not_stuck_when_it_gets_work_again() -> None:
    desk = Desk()
    names = [f"w{n}" for n in range(10)]
    desk.join(*names)
    for name in names:
        desk.tell(ev.Drain(at=desk.now, worker=name, by="root"))
    desk.live(10.0)
    desk.join("teacher")
    desk.submit(300)
    desk.report("teacher", seconds=0.001)
    desk.lose("teacher")
    desk.tell(ev.Resume(at=desk.now, worker="w0"))
    assert len(desk.held("w0")) > 20, "it is filled in several rounds, all of them now"


def test_the_last_tasks_are_spread_evenly_over_unequal_machines_too() -> None:
    desk = Desk()
    desk.join("teacher")
    desk.submit(101)
    desk.report("teacher", seconds=0.001)
    desk.pool.handle(ev.Lost(at=desk.now, worker="teacher", cause="unavailable"))
    for n in range(10):
        ad = WorkerAd(assets={"cpus": 1.0, "memory": 1000.0 + n})
        desk.pool.handle(ev.Joined(at=desk.now, worker=f"w{n}", incarnation="one", ad=ad, holds=[]))
    desk.wait(0.0)
    shares = [len(desk.held(f"w{n}")) for n in range(10)]
    assert max(shares) <= 2 * min(shares)


def test_failures_teach_nothing_about_run_times() -> None:
    """Else a machine that fails at once would be supplied far ahead with tasks to fail."""
    desk = Desk()
    desk.join("good", "bad")
    desk.submit(200, max_failures=99)
    desk.report("good", seconds=60.0)
    for _ in range(5):
        desk.fail("bad", seconds=0.001)
        assert len(desk.held("bad")) == 1
    assert desk.pool.state.jobs[1].mean_seconds == 60.0


def test_tasks_that_are_reported_together_count_as_one_each() -> None:
    desk = Desk()
    desk.join("w", cpus=4)
    job = desk.submit(8)
    desk.report("w", *desk.held("w"), seconds=3.0)
    assert desk.pool.state.jobs[job].mean_seconds == 3.0


def test_the_mean_follows_what_tasks_take_now() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(200)
    desk.report("w", seconds=60.0)
    for _ in range(150):
        desk.report("w", seconds=0.5)
    mean = desk.pool.state.jobs[1].mean_seconds
    assert mean is not None
    assert 0.4 < mean < 0.7


def test_a_template_travels_to_a_worker_once() -> None:
    desk = Desk()
    desk.join("w", cpus=2)
    job = desk.submit(5)
    (run,) = desk.of(fx.Run)
    assert [template.job_id for template in run.templates] == [job]
    desk.report("w")
    (run,) = desk.of(fx.Run)
    assert run.templates == []
    desk.join("w", cpus=2, incarnation="two")
    (run,) = desk.of(fx.Run)
    assert [template.job_id for template in run.templates] == [job], "the new process knows nothing"


def test_a_worker_is_told_which_templates_it_may_forget() -> None:
    desk = Desk()
    desk.join("w")
    forgotten: list[int] = []
    for _ in range(40):
        desk.submit()
        (run,) = desk.of(fx.Run)
        forgotten += run.forget
        desk.report("w")
    assert len(forgotten) == len(set(forgotten)) >= 20
    assert len(desk.worker("w").known_jobs) <= 17


def test_ten_million_tasks_take_no_memory_before_they_run() -> None:
    desk = Desk()
    desk.join("w", cpus=8)
    tracemalloc.start()
    desk.submit(10_000_000)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used_bytes < 100_000


def test_supplies_that_have_just_come_are_not_taken_back() -> None:
    """The worker reported nothing for long because it had nothing to do."""
    desk = Desk()
    desk.join("rested", "teacher")
    desk.tell(ev.Drain(at=desk.now, worker="rested", by="root"))
    desk.submit(6)
    desk.report("teacher", seconds=0.001)
    desk.live(10.0)
    desk.lose("teacher")
    desk.tell(ev.Resume(at=desk.now, worker="rested"))
    assert not desk.pool.state.demand, "it has all that there is"
    desk.join("idle")
    desk.wait(0.2)
    assert not desk.of(fx.Recall)
    desk.wait(1.0)
    assert len(desk.of(fx.Recall)) == 1


def test_a_worker_keeps_as_many_templates_as_it_may_and_those_that_it_needs() -> None:
    desk = Desk()
    desk.join("w", cpus=2)
    lasting = desk.submit()
    (running,) = desk.held("w")
    ended = []
    for _ in range(KNOWN_JOBS - 1):
        ended.append(desk.submit())
        (run,) = desk.of(fx.Run)
        assert run.forget == []
        desk.report("w", desk.held("w")[-1])
    desk.submit()
    (run,) = desk.of(fx.Run)
    assert run.forget == ended
    assert desk.held("w")[0] == running
    assert lasting in desk.worker("w").known_jobs
