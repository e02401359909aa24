"""What a user, or a group, may have at workers at once."""

from __future__ import annotations

from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.attempts.recounting import recount
from kestrelctl.core.model.records import GroupRecord, UserRecord
from kestrelctl.core.model.refusal import Reason, Refusal


def bound(driver: PoolDriver, record: UserRecord | GroupRecord) -> None:
    state = driver.pool.state
    if isinstance(record, UserRecord):
        state.sharers.put(record)
    else:
        state.settings.put(record)
        state.sharers.bind()
    recount(state)


def held(driver: PoolDriver, owner: str) -> int:
    return sum(
        task.job.owner == owner
        for worker in driver.pool.state.workers.values()
        for task in worker.held.values()
    )


def test_no_more_than_a_user_may_have_are_handed_out() -> None:
    driver = PoolDriver()
    bound(driver, UserRecord(name="ada", max_running=3))
    driver.submit(10, owner="ada")
    driver.submit(10, owner="ada", cpus=0.5)
    driver.join("a", "b", cpus=8)
    for _ in range(10):
        assert held(driver, "ada") == 3
        driver.report(next(name for name in "ab" if driver.held(name)))


def test_what_a_user_may_not_have_goes_to_others() -> None:
    driver = PoolDriver()
    bound(driver, UserRecord(name="ada", max_running=3))
    driver.hold_back()
    driver.submit(10, owner="ada", priority=200)
    driver.join("a", "b", cpus=4)
    driver.submit(10, owner="bob")
    driver.let_go()
    assert (held(driver, "ada"), held(driver, "bob")) == (3, 5)


def test_short_tasks_that_wait_at_a_worker_count() -> None:
    driver = PoolDriver()
    bound(driver, UserRecord(name="ada", max_running=5))
    driver.join("w")
    driver.submit(1000, owner="ada")
    for _ in range(20):
        driver.report("w", seconds=0.001)
        assert held(driver, "ada") <= 5


def test_amounts_of_assets_are_bounded() -> None:
    driver = PoolDriver()
    bound(driver, UserRecord(name="ada", limits={"fpga": 2500}))
    driver.join("w", cpus=16, fpga=8)
    driver.submit(10, owner="ada", fpga=1)
    driver.submit(3, owner="ada")
    assert sorted(driver.jobs_at("w")) == [1, 1, 2, 2, 2], "two of the first, all of the second"


def test_members_of_a_group_have_its_bounds_together() -> None:
    driver = PoolDriver()
    bound(driver, GroupRecord(name="physics", max_running=4))
    for name in ("ada", "bob"):
        bound(driver, UserRecord(name=name, group="physics"))
        driver.submit(10, owner=name)
    driver.join("w", cpus=16)
    assert (held(driver, "ada"), held(driver, "bob")) == (2, 2)


def test_what_one_member_gives_back_another_may_have() -> None:
    driver = PoolDriver()
    bound(driver, GroupRecord(name="physics", max_running=1))
    for name in ("ada", "bob"):
        bound(driver, UserRecord(name=name, group="physics"))
    driver.submit(1, owner="ada")
    driver.submit(1, owner="eve", cpus=64)  # so that whoever idles is looked at, and set aside
    driver.join("a", "b")
    driver.submit(1, owner="bob")
    busy = next(name for name in "ab" if driver.held(name))
    driver.tell(ev.Drain(at=driver.now, worker=busy, by="root"))
    driver.report(busy)
    assert held(driver, "bob") == 1, "workers that had been set aside are looked at again"


def test_bounds_that_are_set_count_what_runs_already() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8)
    driver.submit(100, owner="ada", cpus=2)
    assert held(driver, "ada") == 4
    bound(driver, UserRecord(name="ada", max_running=2))
    driver.report("w")
    assert held(driver, "ada") == 3, "nothing is killed, and nothing begins"
    driver.report("w", *driver.held("w"))
    assert held(driver, "ada") == 2
    bound(driver, UserRecord(name="ada"))
    driver.wait(0.1)
    assert held(driver, "ada") == 4


def test_explain_says_whose_bound_it_is() -> None:
    driver = PoolDriver()
    bound(driver, UserRecord(name="ada", max_running=1, limits={"fpga": 1000}))
    driver.join("w", cpus=8, fpga=8)
    job = driver.submit(10, owner="ada", fpga=1)
    [why] = driver.pool.explain(driver.pool.state.jobs[job], driver.now).job_reasons
    assert (why.reason, why.wanted, why.found) == (
        Reason.QUOTA,
        "at most 1 at once",
        "1 of user ada",
    )
    assert driver.pool.census(driver.now).waiting["quota"] == 9
    bound(driver, UserRecord(name="ada", limits={"fpga": 1000}))
    [why] = driver.pool.explain(driver.pool.state.jobs[job], driver.now).job_reasons
    assert (why.wanted, why.found) == ("1 fpga of at most 1 fpga at once", "1 fpga of user ada")


def test_what_is_lost_or_given_back_is_counted_back() -> None:
    driver = PoolDriver()
    bound(driver, UserRecord(name="ada", max_running=2))
    driver.join("a", "b", cpus=4)
    driver.submit(10, owner="ada")
    driver.lose(next(name for name in "ab" if driver.held(name)))
    driver.wait(0.1)
    assert held(driver, "ada") == 2


def test_what_workers_still_have_after_a_restart_counts() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    job = driver.submit(10, owner="ada")
    before = driver.held("w")
    driver.restart()
    bound(driver, UserRecord(name="ada", max_running=3))
    driver.join("w", cpus=4, holds=before, incarnation="one")
    assert len(before) == 4
    assert held(driver, "ada") == 4
    driver.report("w", *driver.held("w")[:2])
    assert held(driver, "ada") == 3
    assert job in driver.jobs_at("w")


def test_whoever_is_bounded_gets_nothing_after_a_restart_until_all_workers_have_spoken() -> None:
    driver = PoolDriver()
    driver.join("first", "second")
    job = driver.submit(9, owner="ada")
    kept = {name: driver.held(name) for name in ("first", "second")}
    driver.restart()
    bound(driver, UserRecord(name="ada", max_running=2))
    driver.submit(1, owner="bob")
    driver.join("idle", cpus=4)
    assert (held(driver, "ada"), held(driver, "bob")) == (0, 1), "others need not wait"
    assert driver.pool.explain(driver.pool.state.jobs[job], driver.now).job_reasons[0] == Refusal(
        Reason.RECOVERING
    )
    for name in kept:
        driver.join(name, holds=kept[name], incarnation="one")
        assert job not in driver.jobs_at("idle")
    driver.report("first")
    assert held(driver, "ada") == 2


def test_after_a_restart_nobody_waits_for_workers_that_stay_silent() -> None:
    driver = PoolDriver()
    driver.join("silent", fpga=1)
    driver.submit(2, owner="bob", fpga=1)
    driver.submit(9, owner="ada")
    driver.restart()
    bound(driver, UserRecord(name="ada", max_running=2))
    driver.join("idle", cpus=4)
    assert held(driver, "ada") == 0
    driver.live(driver.pool.config.reconcile_seconds + 1)
    assert held(driver, "ada") == 2


def test_a_job_with_a_rank_whose_user_may_have_nothing_more_stops_nobody() -> None:
    driver = PoolDriver()
    bound(driver, UserRecord(name="ada", max_running=0))
    driver.submit(10, owner="ada", rank="TARGET.Cpus")
    driver.submit(2, owner="bob")
    driver.join("w", cpus=4)
    assert (held(driver, "ada"), held(driver, "bob")) == (0, 2)


def test_tokens_of_the_pool_are_bounded() -> None:
    driver = PoolDriver()
    driver.own("matlab", 5)
    bound(driver, UserRecord(name="ada", limits={"matlab": 2_000}))
    driver.submit(10, owner="ada", matlab=1)
    driver.submit(10, owner="bob", matlab=1)
    driver.join("a", cpus=8)
    assert (held(driver, "ada"), held(driver, "bob")) == (2, 3)
    for _ in range(9):
        driver.report("a")
        assert held(driver, "ada") <= 2


def test_members_that_start_together_hold_no_more_tokens_than_their_user_may() -> None:
    driver = PoolDriver()
    driver.own("matlab", 5)
    bound(driver, UserRecord(name="ada", limits={"matlab": 2_000}))
    driver.join("a", "b", "c", cpus=8)
    driver.submit(3, owner="ada", matlab=1, span=3)
    assert held(driver, "ada") == 0
    driver.submit(2, owner="ada", matlab=1, span=2)
    assert held(driver, "ada") == 2


def test_tokens_that_are_held_when_a_bound_is_set_count() -> None:
    driver = PoolDriver()
    driver.own("matlab", 5)
    driver.join("a", cpus=8)
    driver.submit(10, owner="ada", matlab=1)
    bound(driver, UserRecord(name="ada", limits={"matlab": 3_000}))
    for _ in range(3):
        driver.report("a")
    assert held(driver, "ada") == 3


def test_explain_says_that_it_is_the_bound_on_tokens() -> None:
    driver = PoolDriver()
    driver.own("matlab", 5)
    bound(driver, UserRecord(name="ada", limits={"matlab": 2_000}))
    driver.join("a", cpus=8)
    job_id = driver.submit(3, owner="ada", matlab=1)
    [why] = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now).job_reasons
    assert why.reason is Reason.QUOTA
    assert (why.wanted, why.found) == (
        "1 matlab of at most 2 matlab at once",
        "2 matlab of user ada",
    )
