"""Machines that break or lie: what is held against them, and what is not."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.recent import MOST_STRETCHES, Odds, Recent
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.records import Happening
from kestrelctl.core.model.result import Outcome
from kestrelctl.manager.views import explanation, worker_view

# -- what one account may offer --------------------------------------------------------------------


def cpus_of(driver: PoolDriver, name: str) -> float:
    return worker_view(driver.worker(name), driver.now).assets["cpus"]


def test_of_an_ad_no_more_counts_than_an_account_may_offer() -> None:
    driver = PoolDriver(Config(max_account_cpus=100.0))
    driver.join("w@x/1", cpus=1e6)
    [note] = driver.of(fx.Note)
    assert "offers 1,000,000 cpus, of which 100 count" in note.text
    driver.submit(1000)
    assert len(driver.held("w@x/1")) == 100
    view = worker_view(driver.worker("w@x/1"), driver.now)
    assert (view.assets["cpus"], view.offered_cpus) == (100.0, 1e6)
    driver.join("w@x/1", cpus=1e6)
    assert driver.of(fx.Note) == [], "it is said once"
    driver.restart()
    assert cpus_of(driver, "w@x/1") == 100.0


def test_all_workers_of_an_account_share_its_limit() -> None:
    driver = PoolDriver(Config(max_account_cpus=100.0))
    driver.join("w@x/1", "w@x/2", "v@x/1", cpus=64)
    assert [cpus_of(driver, name) for name in ("w@x/1", "w@x/2", "v@x/1")] == [64.0, 36.0, 64.0]
    assert worker_view(driver.worker("w@x/1"), driver.now).offered_cpus is None


def test_what_one_worker_leaves_another_of_its_account_may_offer() -> None:
    driver = PoolDriver(Config(max_account_cpus=100.0))
    driver.join("w@x/1", "w@x/2", cpus=64)
    driver.lose("w@x/1")
    assert [ask.worker for ask in driver.of(fx.AskWho)] == ["w@x/2"]
    driver.join("w@x/2", cpus=64)
    assert cpus_of(driver, "w@x/2") == 64.0


# -- comparing -------------------------------------------------------------------------------------


def test_the_chance_that_only_others_draw_the_other_kind() -> None:
    assert Odds(10, 5, 0).chance() == 1.0
    assert Odds(1, 0, 1).chance() == 0.5
    assert abs(Odds(10, 0, 10).chance() * 184756 - 1.0) < 1e-9


def test_what_is_remembered_of_a_job_is_bounded() -> None:
    recent = Recent()
    for n in range(10 * MOST_STRETCHES):
        recent.add(f"w{n % 7}", float(n), 1.0, 1.0, failed=False, fresh=True)
    assert recent.speeds("w0", 1, 0.0, 0.5).unlike <= MOST_STRETCHES


def test_tasks_that_travelled_together_are_one_round() -> None:
    """Neighbours are alike: all of a worker's may be bad ones, and nobody else's."""
    driver = PoolDriver()
    driver.join("good", cpus=1)
    driver.join("unlucky", cpus=64)
    driver.submit(300, max_failures=50)
    driver.now += 1.0
    for attempt in driver.held("unlucky"):
        driver.fail("unlucky", attempt)
        driver.now += 0.001
        driver.report("good")
    assert driver.worker("unlucky").streak == 64
    assert driver.pool.state.totals.workers_quarantined == 0


def test_what_was_handed_out_before_proves_nothing() -> None:
    """From somewhere on all tasks fail: the others still end those from before, well."""
    driver = PoolDriver()
    good = [f"good{n}" for n in range(64)]
    driver.join(*good)
    driver.submit(300, max_failures=50)
    driver.now += 1.0
    driver.join("late")
    for name in good:
        driver.fail("late")
        driver.now += 0.001
        driver.report(name)
    assert driver.worker("late").streak == 64
    assert driver.pool.state.totals.workers_quarantined == 0


def quarantined(driver: PoolDriver) -> int:
    """A job at which `bad` fails where `good` does not; returns the job."""
    driver.join("good", "bad")
    job = driver.submit(400, max_failures=50)
    for _ in range(12):
        driver.now += 1.0
        driver.fail("bad", signal=9)
        driver.report("good", seconds=1.0)
    return job


def test_the_reason_of_a_quarantine_is_told_everywhere() -> None:
    driver = PoolDriver()
    job = quarantined(driver)
    view = worker_view(driver.worker("bad"), driver.now)
    assert view.state == "quarantined"
    assert view.quarantined_for == "10 failures in a row where others succeed, last: signal 9"
    told = [r for r in driver.records if isinstance(r, Happening) and r.what == "quarantined"]
    assert [(r.job_id, r.index, r.worker) for r in told] == [(job, -1, "bad")]
    assert view.quarantined_for in told[0].detail
    found = explanation(driver.pool, driver.pool.state.jobs[job], None, driver.now)
    assert any(view.quarantined_for in each.refusal.found for each in found.obstacles)
    assert driver.pool.state.totals.quarantines["failures"] == 1
    driver.tell(ev.Resume(at=driver.now, worker="bad"))
    assert worker_view(driver.worker("bad"), driver.now).quarantined_for == ""


def speed_up(driver: PoolDriver, rounds: int, seconds: float, said: float | None = None) -> None:
    """One worker brings its tasks to an end at once while others need a second."""
    driver.join("a", "b", "c", "d", "fast")
    driver.submit(5000)
    for which in range(rounds):
        driver.now += 0.05
        driver.report("fast", seconds=seconds if said is None else said)
        if which % 20 == 19:
            for name in "abcd":
                driver.report(name, seconds=1.0)


def test_a_worker_that_needs_no_time_is_not_believed() -> None:
    driver = PoolDriver()
    speed_up(driver, 130, 0.0005)
    assert driver.pool.state.totals.quarantines["speed"] == 1
    assert "take at most 0.0005 s" in driver.worker("fast").quarantined_for


def test_nor_one_that_says_it_needed_longer_than_there_was() -> None:
    driver = PoolDriver()
    speed_up(driver, 130, 0.0, said=0.0505)
    assert driver.pool.state.totals.quarantines["speed"] == 0
    driver = PoolDriver()
    driver.join("a", "b", "c", "d", "fast")
    driver.submit(5000)
    for which in range(130):
        driver.now += 0.001
        driver.report("fast", seconds=1.0)
        if which % 10 == 9:
            driver.now += 1.0
            for name in "abcd":
                driver.report(name, seconds=1.0)
            driver.report("fast", *driver.held("fast"), seconds=1.0)
    assert driver.pool.state.totals.quarantines["speed"] == 0, "now and then it took a second"


def test_a_machine_that_is_fifty_times_as_fast_is_believed() -> None:
    driver = PoolDriver()
    speed_up(driver, 130, 0.02)
    assert driver.pool.state.totals.workers_quarantined == 0


def test_nothing_is_put_behind_tasks_that_only_one_worker_calls_short() -> None:
    driver = PoolDriver()
    driver.join("a", "fast")
    driver.submit(5000)
    driver.now += 0.01
    driver.report("fast", seconds=0.0001)
    assert len(driver.held("fast")) == 1
    driver.now += 0.01
    driver.report("a", seconds=0.0001)
    driver.report("fast", seconds=0.0001)
    assert len(driver.held("fast")) > 1


def test_accounts_that_have_gone_are_not_remembered_for_ever() -> None:
    """Environments have accounts of their own, each for an hour or so."""
    driver = PoolDriver(Config(forget_worker_seconds=60.0, unable_pause_seconds=1.0))
    driver.join("stays")
    for n in range(300):
        driver.join(f"env-{n}")
        driver.submit(2)
        driver.now += 0.1
        driver.report(f"env-{n}", seconds=1.0)
        driver.report("stays", seconds=1.0)
        driver.submit()
        driver.report(f"env-{n}", outcome=Outcome.UNABLE, reason="no-space: /")
        driver.lose(f"env-{n}")
        driver.wait(61.0)
        driver.tell(ev.Heard(at=driver.now, worker="stays"))
    state = driver.pool.state
    assert len(state.workers) < 5
    assert len(state.rounds) < 250
    assert len(state.set_aside) < 5


# -- losses ----------------------------------------------------------------------------------------


def test_what_may_not_have_begun_is_not_counted_once() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(max_losses=1)
    driver.lose("w", begun=False)
    assert driver.pool.job(job) is not None
    driver.join("w", incarnation="two")
    assert driver.jobs_at("w") == [job]
    driver.lose("w", begun=False)
    assert driver.ended == [job]


def test_a_task_that_was_lost_goes_to_another_worker_if_one_can_take_it() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(max_losses=9)
    driver.hold_back()
    driver.lose("a")
    driver.join("a", incarnation="two")
    driver.join("z", tags=["another-class"])
    driver.let_go()
    assert driver.jobs_at("z") == [job]
    driver.hold_back()
    driver.lose("z")
    driver.tell(ev.Drain(at=driver.now, worker="a", by="root"))
    driver.join("z", incarnation="two", tags=["another-class"])
    driver.live(2.0)
    driver.let_go()
    assert driver.jobs_at("z") == [job], "nobody else can"


def test_after_a_second_loss_a_task_waits_longer_each_time() -> None:
    driver = PoolDriver()
    driver.join("w", "idle-but-too-small", cpus=1)
    driver.submit(max_losses=9)
    driver.tell(ev.Drain(at=driver.now, worker="idle-but-too-small", by="root"))
    pauses = []
    for process in range(5):
        holder = "w" if driver.held("w") else "idle-but-too-small"
        driver.lose(holder)
        lost_at = driver.now
        driver.join(holder, incarnation=str(process))
        driver.tell(ev.Resume(at=driver.now, worker=holder))
        while not driver.held("w") and not driver.held("idle-but-too-small"):
            driver.live(0.5, step=0.5)
        pauses.append(driver.now - lost_at)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_what_runs_beside_a_suspected_task_is_not_counted() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8)
    bad = driver.submit(max_losses=4)
    for process in "ab":
        driver.lose("w")
        driver.join("w", cpus=8, incarnation=process)
        driver.live(2.0)
    innocent = driver.submit(1, max_losses=1)
    assert sorted(driver.jobs_at("w")) == [bad, innocent]
    assert driver.worker("w").free["cpus"] == 5000, "the suspected one has a quarter"
    driver.lose("w")
    assert innocent in driver.pool.state.jobs
    driver.join("w", cpus=8, incarnation="c")
    assert driver.jobs_at("w") == [bad]
    assert driver.worker("w").free["cpus"] == 0, "now it runs alone"
    driver.lose("w")
    assert driver.ended == [bad]


def test_a_worker_that_is_lost_again_and_again_is_put_in_quarantine() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    driver.submit(100, max_losses=99)
    for process in range(5):
        driver.lose("a")
        driver.join("a", incarnation=str(process))
        driver.now += 1.0
    assert driver.pool.state.totals.quarantines["losses"] == 1
    assert driver.held("a") == []
    assert driver.worker("a").quarantined_for == "lost 5 times within 60 s"


def test_a_worker_is_not_blamed_for_a_task_that_was_lost_elsewhere_before() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    for process in range(4):
        driver.submit(max_losses=2)
        for _ in "ab":
            [holder] = [name for name in "ab" if driver.held(name)]
            driver.lose(holder)
            driver.join(holder, incarnation=f"{process} {driver.now}")
            driver.now += 0.1
        driver.live(1.0, step=0.5)
    assert driver.pool.state.totals.losses["unavailable"] == 8
    assert sum(len(driver.worker(name).lapses) for name in "ab") == 4


def test_a_task_that_was_lost_is_passed_over_only_for_others_that_can_take_it() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.join("busy", tags=["x"])
    job = driver.submit(2, max_losses=9)
    driver.lose("a")
    driver.join("a", incarnation="two")
    assert driver.jobs_at("a") == [job]


def test_what_a_suspected_task_leaves_of_a_machine_is_used() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8)
    driver.submit(max_losses=9)
    for process in "ab":
        driver.lose("w")
        driver.hold_back()
        driver.join("w", cpus=8, incarnation=process)
        driver.live(2.0)
        if process == "b":
            driver.submit(6)
        driver.let_go()
    assert len(driver.held("w")) == 7


def test_that_a_machine_cannot_start_a_task_is_no_loss_of_the_task() -> None:
    driver = PoolDriver(Config(unable_pause_seconds=1.0))
    driver.join("full")
    job = driver.submit(max_losses=1)
    starts = []
    for _ in range(5):
        driver.report("full", outcome=Outcome.UNABLE, reason="no-space: /")
        since = driver.now
        while not driver.held("full"):
            driver.live(0.5, step=0.5)
        starts.append(driver.now - since)
    assert driver.jobs_at("full") == [job]
    assert starts[0] <= 1.5 < starts[-1], "it waits longer each time"


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_what_runs_in_the_process_of_a_suspected_task_is_not_counted(order: str) -> None:
    driver = PoolDriver()
    driver.join("a", incarnation="0")
    bad = driver.submit(max_losses=9)
    for process in "12":
        driver.lose("a")
        driver.join("a", incarnation=process)
        driver.live(2.0)
    driver.join("b", incarnation="2")
    innocent = driver.submit(max_losses=1)
    assert (driver.jobs_at("a"), driver.jobs_at("b")) == ([bad], [innocent])
    for name in order:
        driver.lose(name)
    assert innocent in driver.pool.state.jobs
    assert not driver.worker("b").lapses


@pytest.mark.parametrize("order", ["abcd", "dcba"])
def test_a_task_that_ends_a_process_of_several_workers_takes_no_other_with_it(order: str) -> None:
    driver = PoolDriver()
    driver.join(*order, incarnation="0")
    bad = driver.submit(max_losses=5)
    innocent = driver.submit(12)
    process = 0
    for _ in range(200):
        if bad in [job for name in order for job in driver.jobs_at(name)]:
            for name in order:
                driver.lose(name)
            process += 1
            driver.join(*order, incarnation=str(process))
        else:
            for name in order:
                if driver.held(name):
                    driver.report(name)
        driver.live(0.5, step=0.5)
    assert process == 5
    assert driver.ended == [bad, innocent] or driver.ended == [innocent, bad]
    counts = {job.job_id: job.counts for job in driver.store().jobs()}
    assert (counts[bad].lost, counts[innocent].done) == (1, 12)
    assert driver.pool.state.totals.quarantines["losses"] == 0
