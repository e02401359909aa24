"""What neighbours lend: one worker to the pool, which is many machines, and behind its own."""

from __future__ import annotations

import pytest
from flockkit import FAR, NEAR, guest, join, lend, run, visit
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.members.enrollment import check_name
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.end_reason import out_of_lent_time
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import stays_home
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.neighbour import LEAST_CPUS, is_neighbour
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.share_change import GroupChange, ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.errors import UsageError

STARVING = Config(starving_seconds=10.0)


# -- who is one -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jid", "is_one"),
    [
        ("flock@b.example/0a1b2c3d4e5f", True),
        ("flock@b.example", True),
        ("flock.example/0a", False),
        ("flocks@b.example/0a", False),
        ("w@flock.example/flock@x", False),
        ("w1", False),
    ],
)
def test_a_neighbour_is_who_speaks_for_a_pool(jid: str, is_one: bool) -> None:
    assert is_neighbour(jid) is is_one


def test_no_worker_of_the_pools_own_can_be_called_as_neighbours_are() -> None:
    with pytest.raises(UsageError, match="no worker can be called flock"):
        check_name("flock")
    check_name("flock1")


@pytest.mark.parametrize("seconds", [-0.1, float("inf"), float("nan")])
def test_no_worker_is_less_than_nothing_or_endlessly_far_away(seconds: float) -> None:
    assert (
        problem_with_ad(WorkerAd(distance_seconds=seconds)) == "a worker is 0 or more seconds away"
    )
    assert problem_with_ad(WorkerAd(distance_seconds=0.25)) is None


# -- where tasks go -------------------------------------------------------------------------------


def placed_in_turn(driver: PoolDriver, **spec: str) -> list[str]:
    """Where the tasks of three jobs go that come one after the other."""
    found: list[str] = []
    for _ in range(3):
        driver.submit(**spec)
        found += [effect.worker for effect in driver.of(fx.Run)]
    return found


@pytest.mark.parametrize("rank", ["", "Memory"], ids=["without rank", "with rank"])
def test_own_workers_come_before_neighbours_and_near_ones_before_far_ones(rank: str) -> None:
    driver = PoolDriver()
    lend(driver, FAR, 0.2, memory=0)
    lend(driver, NEAR, 0.02, memory=0)
    driver.join("w")
    assert placed_in_turn(driver, rank=rank) == ["w", NEAR, FAR]


def test_an_own_worker_comes_first_though_a_job_would_rank_a_neighbour_higher() -> None:
    driver = PoolDriver()
    lend(driver, NEAR, memory=2.0**40)
    driver.join("w", memory_bytes=2**30)
    driver.submit(rank="Memory")
    assert [effect.worker for effect in driver.of(fx.Run)] == ["w"]


def test_an_own_worker_comes_first_however_little_a_neighbour_is_of_use_to_others() -> None:
    driver = PoolDriver()
    lend(driver, NEAR)
    driver.join("w", cpus=8, memory_bytes=2**34)
    driver.hold_back()
    small = driver.submit()
    driver.submit(cpus=7, memory_bytes=2**33)
    driver.let_go()
    assert run(driver) == {NEAR: [], "w": [small, small + 1]}


def test_several_tasks_fill_own_workers_then_near_then_far_ones() -> None:
    driver = PoolDriver()
    lend(driver, FAR, 0.2, cpus=2)
    lend(driver, NEAR, 0.02, cpus=2)
    driver.join("w1", "w2", cpus=2)
    driver.submit(7)
    assert {jid: len(jobs) for jid, jobs in run(driver).items()} == {
        NEAR: 2,
        FAR: 1,
        "w1": 2,
        "w2": 2,
    }


def test_what_an_own_worker_says_of_its_distance_does_not_count() -> None:
    driver = PoolDriver()
    lend(driver, NEAR)
    lend(driver, "far-off", 5.0)
    driver.submit()
    assert [effect.worker for effect in driver.of(fx.Run)] == ["far-off"]


def test_a_neighbour_is_a_neighbour_though_nobody_measured_how_far_away_it_is() -> None:
    driver = PoolDriver()
    lend(driver, NEAR, 0.0)
    driver.join("w")
    assert placed_in_turn(driver) == ["w", NEAR]


def test_nothing_that_takes_a_second_waits_at_a_neighbour_behind_others() -> None:
    driver = PoolDriver()
    lend(driver, cpus=4)
    driver.submit(100)
    for _ in range(3):
        driver.now += 1.0
        driver.report(NEAR, *driver.held(NEAR), seconds=1.0)
        assert driver.worker(NEAR).queued == 0
        assert len(driver.held(NEAR)) == 4


@pytest.mark.parametrize(
    "spec",
    [
        {"stays": True},
        {"service": True},
        {"span": 2, "count": 2},
        {"guest": guest()},
    ],
    ids=["stays", "service", "span", "guest"],
)
@pytest.mark.parametrize("requirements", ["", "Cpus > 0"], ids=["plain", "with an expression"])
def test_what_stays_at_home_goes_to_no_neighbour(spec: dict[str, int], requirements: str) -> None:
    driver = PoolDriver()
    lend(driver, NEAR, cpus=8)
    lend(driver, FAR, cpus=8)
    job_id = driver.submit(requirements=requirements, **spec)  # type: ignore[arg-type]
    assert driver.of(fx.Run) == []
    job = driver.pool.job(job_id)
    assert job is not None
    (group,) = driver.pool.explain(job, driver.now).groups
    assert group.refusal.reason is Reason.STAYS_HOME
    assert driver.pool.census(driver.now).waiting["stays-home"] == job.waiting
    join(driver, "w1", "w2")
    assert len(driver.held("w1")) == 1


def test_any_other_job_may_go_to_a_neighbour() -> None:
    assert not stays_home(
        JobSpec(program=Program(argv=("true",)), requires=("GPU",), max_running=3)
    )


def test_a_loan_of_nothing_gets_not_even_the_smallest_task() -> None:
    driver = PoolDriver()
    lend(driver, cpus=LEAST_CPUS)
    driver.submit(cpus=LEAST_CPUS)
    assert driver.held(NEAR) == []
    driver.join("w")
    assert len(driver.held("w")) == 1


# -- many machines --------------------------------------------------------------------------------


def test_what_a_neighbour_lends_is_not_kept_for_a_job_that_starves() -> None:
    driver = PoolDriver(STARVING)
    lend(driver, cpus=4)
    driver.submit(4)
    driver.submit(cpus=2, owner="grace")
    driver.live(30.0)
    assert driver.worker(NEAR).running == 4
    assert driver.pool.state.kept == {}


def test_a_neighbour_may_lend_more_processors_than_one_account_may_offer() -> None:
    driver = PoolDriver()
    lend(driver, cpus=600)
    driver.submit(700)
    assert len(driver.held(NEAR)) == 600
    driver.restart()
    assert driver.worker(NEAR).assets == {"cpus": 600_000}


def test_an_own_account_may_offer_no_more_than_before() -> None:
    driver = PoolDriver()
    driver.join("w@x/1", cpus=1800)
    assert driver.worker("w@x/1").assets == {"cpus": 512_000}


@pytest.mark.parametrize(("jid", "lost"), [(NEAR, 0), ("w", 1)], ids=["neighbour", "own"])
def test_what_is_lost_with_a_neighbour_is_no_tasks_fault(jid: str, lost: int) -> None:
    driver = PoolDriver(Config(quarantine_losses=100))
    job_id = driver.submit(max_losses=3)
    for n in range(3):
        lend(driver, jid, incarnation=str(n))
        driver.wait(100.0 * n)
        assert driver.jobs_at(jid) == [job_id]
        driver.lose(jid)
    job = driver.pool.job(job_id)
    assert (job is None) == bool(lost)
    if job is not None:
        (task,) = job.live.values()
        assert (task.losses, len(task.lost_numbers)) == (0, 3)
        assert not task.is_suspect


def test_a_suspected_task_is_charged_at_a_neighbour_what_it_asks_for() -> None:
    driver = PoolDriver(Config(quarantine_losses=100))
    driver.submit(max_losses=10)
    for n in range(2):
        driver.join("w", cpus=8, incarnation=str(n))
        driver.wait(10.0)
        driver.lose("w")
    driver.wait(60.0)
    lend(driver, cpus=200)
    (effect,) = driver.of(fx.Run)
    assert effect.claims == [{"cpus": 1000}]


def test_a_neighbour_that_is_lost_again_and_again_is_left_alone_for_a_while() -> None:
    driver = PoolDriver()
    driver.submit(5)
    driver.join("w")
    for n in range(5):
        lend(driver, incarnation=str(n))
        driver.wait(0.01)
        assert driver.jobs_at(NEAR)
        driver.lose(NEAR)
    assert driver.worker(NEAR).quarantined_for == "lost 5 times within 60 s"


def failures_until_quarantine(jid: str, cpus: int) -> int:
    """How many tasks fail in a row, at once, at a worker with so many, where others do well."""
    driver = PoolDriver()
    lend(driver, jid, cpus=cpus)
    driver.join("w1", "w2", cpus=20)
    driver.submit(100_000)
    for failed in range(500):
        driver.now += 0.1
        for name in ("w1", "w2"):
            driver.report(name, *driver.held(name)[:10], seconds=5.0)
        if driver.worker(jid).quarantined_until > driver.now:
            return failed
        driver.fail(jid, driver.held(jid)[-1])
    raise AssertionError("nobody minds")


def test_a_neighbour_is_left_alone_when_more_tasks_in_a_row_fail_than_one_machine_has() -> None:
    assert 10 <= failures_until_quarantine("w", 30) < 20
    assert 30 <= failures_until_quarantine(NEAR, 30) < 50


def test_neighbours_do_not_let_more_own_workers_be_in_quarantine() -> None:
    driver = PoolDriver()
    for n in range(12):
        lend(driver, f"flock@p{n}.example/0a")
    driver.join("w1", "w2", "w3")
    driver.submit(100)
    for name in ("w1", "w2", "w3"):
        for _ in range(5):
            driver.lose(name)
            driver.join(name, incarnation=str(driver.now))
            driver.wait(0.01)
    out = [w.jid for w in driver.pool.workers.values() if w.quarantined_until > driver.now]
    assert len(out) == 1


def test_a_neighbour_in_quarantine_does_not_keep_a_bad_worker_in_service() -> None:
    driver = PoolDriver()
    lend(driver)
    driver.join("w1", "w2")
    driver.submit(100)
    for name in (NEAR, "w1"):
        for n in range(5):
            driver.lose(name)
            lend(driver, name, incarnation=f"{name}{n}")
            driver.wait(0.01)
    out = {w.jid for w in driver.pool.workers.values() if w.quarantined_until > driver.now}
    assert out == {NEAR, "w1"}


# -- what comes back, and what it is told ---------------------------------------------------------


def test_what_a_neighbour_stops_unasked_runs_again_and_nothing_is_counted() -> None:
    driver = PoolDriver()
    lend(driver, cpus=2)
    job_id = driver.submit(2, max_failures=1, max_losses=1)
    driver.report(NEAR, *driver.held(NEAR), outcome=Outcome.KILLED)
    job = driver.pool.job(job_id)
    assert job is not None
    assert (job.counts.failed, job.counts.lost, job.counts.cancelled) == (0, 0, 0)
    assert all(task.failures == task.losses == 0 for task in job.live.values())
    driver.join("w", cpus=2)
    driver.finish_all()
    assert driver.ended == [job_id]
    assert job.counts.done == 2
    assert driver.pool.totals.attempts_failed == 0
    assert sum(driver.pool.totals.losses.values()) == 0


def test_who_lends_less_time_than_a_task_asks_for_ends_that_attempt_and_nothing_else() -> None:
    """The task asks for no more than its job does, and waits beside the others all the same."""
    driver = PoolDriver()
    lend(driver)
    job_id = driver.submit(3, time_request_seconds=64.0)
    reason = out_of_lent_time("5 s")
    driver.report(NEAR, outcome=Outcome.UNABLE, seconds=5.0, reason=reason)
    assert [index for *_, index in driver.held(NEAR)] == [1], "the others go on"
    job = driver.pool.job(job_id)
    assert job is not None
    assert sum(line.waiting for line in job.lines()) == 2
    driver.cancel(job_id, 0)
    driver.finish_all()
    assert driver.ended == [job_id]
    assert (job.counts.done, job.counts.cancelled) == (2, 1)


def test_a_lender_that_ends_a_task_whatever_it_asks_for_gets_it_after_ever_longer_pauses() -> None:
    """It would get it again at once, for ever: that is neither a failure nor a loss."""
    driver = PoolDriver()
    lend(driver)
    driver.submit()
    reason = out_of_lent_time("60 s")
    pauses: list[float] = []
    for _ in range(5):
        driver.report(NEAR, outcome=Outcome.UNABLE, seconds=0.0, reason=reason)
        before = driver.now
        while not driver.held(NEAR):
            driver.wait(0.5)
        pauses.append(driver.now - before)
    assert pauses == [0.0, 0.0, 1.0, 2.0, 4.0]


def test_what_a_neighbour_gives_back_goes_to_others() -> None:
    driver = PoolDriver()
    lend(driver, cpus=2)
    job_id = driver.submit(2)
    driver.join("w", cpus=2)
    numbers = [number for number, *_ in driver.held(NEAR)]
    driver.tell(ev.Leaving(at=driver.now, worker=NEAR))
    driver.tell(ev.Returned(at=driver.now, worker=NEAR, numbers=numbers))
    assert run(driver) == {NEAR: [], "w": [job_id, job_id]}


def test_a_neighbour_that_refuses_one_task_is_sent_others() -> None:
    driver = PoolDriver()
    lend(driver, cpus=2)
    refused = driver.submit(1, max_failures=1)
    driver.report(NEAR, *driver.held(NEAR), outcome=Outcome.UNABLE)
    other = driver.submit(1)
    assert other in [job_id for _, job_id, *_ in driver.held(NEAR)]
    assert driver.worker(NEAR).quarantined_until <= driver.now
    job = driver.pool.job(refused)
    assert job is not None
    assert (job.counts.failed, job.counts.lost) == (0, 0)


def test_a_neighbour_is_told_whose_tasks_it_runs_and_own_workers_are_not() -> None:
    driver = PoolDriver()
    change = ShareChange()
    driver.put(GroupChange("lab", change))
    driver.tell(
        ev.SetUser(
            at=driver.now,
            cause="root",
            request="u",
            name="ada",
            change=change,
            group="lab",
        )
    )
    driver.join("w")
    lend(driver)
    driver.submit(2)
    told = {run.worker: run.templates[0] for run in driver.of(fx.Run)}
    assert (told[NEAR].owner, told[NEAR].group) == ("ada", "lab")
    assert (told["w"].owner, told["w"].group) == ("", "")


def test_a_guest_is_not_among_what_a_neighbour_is_asked_to_run() -> None:
    driver = PoolDriver()
    lend(driver)
    visit(driver, 3)
    own = driver.submit()
    assert driver.jobs_at(NEAR) == [own]
