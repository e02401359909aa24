"""Whose turn it is below priority: who runs the least for his share, or was handed the least."""

from __future__ import annotations

from collections import Counter

import pytest
from poolkit import PoolDriver

from kestrelctl.core.handlers.reporting import USAGE_RECORD_SECONDS
from kestrelctl.core.jobs.fair_share import MOST_AHEAD_SECONDS, MOST_TILT
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.records import UserGone, UserRecord
from kestrelctl.core.model.share_change import GroupChange, ShareChange


def weights(driver: PoolDriver, **of: float) -> None:
    for name, weight in of.items():
        driver.pool.state.sharers.put(UserRecord(name=name, weight=weight))


def at_workers(driver: PoolDriver) -> Counter[str]:
    """How many attempts each user has at workers."""
    return Counter(
        task.job.owner
        for worker in driver.pool.state.workers.values()
        for task in worker.held.values()
    )


def crowd(driver: PoolDriver, workers: int, cpus: float = 1) -> list[str]:
    names = [f"w{n}" for n in range(workers)]
    driver.join(*names, cpus=cpus)
    return names


def in_turn(driver: PoolDriver, name: str, tasks: int, seconds: float = 2.0) -> list[str]:
    """Whose tasks run at a worker of one processor, one after the other.

    Args:
        seconds: that pass with each; without any only what was handed out counts.
    """
    owners = []
    for _ in range(tasks):
        [job_id] = driver.jobs_at(name)
        owners.append(driver.pool.state.jobs[job_id].owner)
        driver.now += seconds
        driver.report(name, seconds=2.0)
    return owners


# -- shares of a moment ----------------------------------------------------------------------------


def test_one_users_million_tasks_do_not_delay_anothers_ten() -> None:
    driver = PoolDriver()
    names = crowd(driver, 10)
    driver.submit(1_000_000, owner="ada")
    few = driver.submit(10, owner="bob")
    for name in names[:5]:
        driver.report(name)
    assert at_workers(driver) == {"ada": 5, "bob": 5}, "what fell free first was all for bob"
    while driver.pool.state.job(few):
        for name in names:
            driver.report(name)
    assert driver.pool.state.jobs[1].cursor <= 30


def test_idle_workers_are_divided_by_weight() -> None:
    driver = PoolDriver()
    driver.hold_back()
    crowd(driver, 30, cpus=2)
    weights(driver, ada=1, bob=2, eve=3)
    for owner in ("ada", "bob", "eve"):
        driver.submit(1000, owner=owner)
    driver.let_go()
    assert at_workers(driver) == {"ada": 10, "bob": 20, "eve": 30}


def test_what_falls_free_goes_to_who_runs_the_least_for_his_weight() -> None:
    driver = PoolDriver()
    names = crowd(driver, 12)
    weights(driver, ada=1, bob=3)
    driver.submit(1000, owner="ada")
    driver.submit(1000, owner="bob")
    for _ in range(3):
        for name in names:
            driver.report(name)
    shares = at_workers(driver)
    assert shares["bob"] == pytest.approx(9, abs=1)


def test_who_keeps_what_he_has_for_long_gets_no_more_of_what_falls_free() -> None:
    driver = PoolDriver()
    driver.hold_back()
    names = crowd(driver, 10)
    long = driver.submit(1000, owner="ada")
    driver.submit(1000, owner="bob")
    driver.let_go()
    for _ in range(5):
        for name in names:
            if long not in driver.jobs_at(name):
                driver.report(name)
    assert at_workers(driver) == {"ada": 5, "bob": 5}


def test_a_worker_of_many_processors_is_divided_too() -> None:
    """Else the first user would fill it with long tasks, and the second would wait for them."""
    driver = PoolDriver()
    driver.hold_back()
    crowd(driver, 1, cpus=64)
    driver.submit(1000, owner="ada")
    driver.submit(1000, owner="bob")
    driver.let_go()
    assert at_workers(driver) == {"ada": 32, "bob": 32}


def test_what_a_user_does_not_want_goes_to_the_others() -> None:
    driver = PoolDriver()
    driver.hold_back()
    crowd(driver, 10)
    driver.submit(1000, owner="ada")
    driver.submit(2, owner="bob")
    driver.let_go()
    assert at_workers(driver) == {"ada": 8, "bob": 2}


def test_users_share_what_their_tasks_cost_and_not_their_number() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("wide", cpus=40)
    driver.submit(1000, owner="ada", cpus=4)
    driver.submit(1000, owner="bob", cpus=1)
    driver.let_go()
    assert at_workers(driver) == {"ada": 5, "bob": 20}


def test_a_task_that_costs_nothing_counts_as_one_processor() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("w", cpus=16, fpga=16)
    driver.submit(100, owner="ada", cpus=0, fpga=1)
    driver.submit(100, owner="bob")
    driver.let_go()
    assert at_workers(driver) == {"ada": 16, "bob": 16}
    assert driver.pool.state.sharers.of("ada").charged == 16


def test_priority_counts_more_than_shares() -> None:
    driver = PoolDriver()
    driver.hold_back()
    crowd(driver, 4)
    driver.submit(100, owner="ada", priority=150)
    driver.submit(100, owner="bob")
    driver.let_go()
    assert at_workers(driver) == {"ada": 4}


def test_among_the_jobs_of_a_user_the_first_goes_first_whatever_it_asks_for() -> None:
    driver = PoolDriver()
    driver.join("w")
    first = driver.submit(2, cpus=1)
    second = driver.submit(2, cpus=0.75)
    third = driver.submit(2, cpus=1)
    order = []
    while driver.pool.state.jobs:
        order += driver.jobs_at("w")
        driver.report("w")
    assert order == [first] * 2 + [second] * 2 + [third] * 2


# -- one slot --------------------------------------------------------------------------------------


def test_on_one_slot_users_take_turns() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(100, owner="ada")
    driver.submit(100, owner="bob")
    found = in_turn(driver, "w", 20, seconds=0.0)
    assert Counter(found)["ada"] == pytest.approx(10, abs=1)
    assert "".join(owner[0] for owner in found).count("aaa") == 0


def test_on_one_slot_turns_follow_the_weights() -> None:
    driver = PoolDriver()
    driver.join("w")
    weights(driver, ada=1, bob=4)
    driver.submit(1000, owner="ada")
    driver.submit(1000, owner="bob")
    found = Counter(in_turn(driver, "w", 200, seconds=0.0))
    assert found["bob"] == pytest.approx(160, abs=10)


def test_who_comes_late_does_not_stop_the_others_until_he_has_had_as_much() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10_000, owner="ada")
    in_turn(driver, "w", 1000)
    driver.submit(10_000, owner="bob")
    found = Counter(in_turn(driver, "w", 90, seconds=0.0))
    assert found["ada"] >= 90 / (1 + 2 * MOST_TILT) - 2, "twice and half of the weight at the most"
    assert found["bob"] > found["ada"], "and yet he is served more often for now"


# -- usage -----------------------------------------------------------------------------------------


def used_in_an_hour(driver: PoolDriver, names: list[str], **seconds: int) -> dict[str, float]:
    """What part of an hour's time owners had whose tasks take so many seconds each."""
    used: Counter[str] = Counter()
    for owner, takes in seconds.items():
        driver.submit(1_000_000, owner=owner, name=str(takes))
    ends = {name: driver.now for name in names}
    stop = driver.now + 3600
    while driver.now < stop:
        name = min(ends, key=lambda name: ends[name])
        driver.now = max(driver.now, ends[name])
        if driver.held(name) and ends[name] > 1000:
            [(_, job_id, _)] = driver.held(name)
            job = driver.pool.state.jobs[job_id]
            used[job.owner] += int(job.spec.name)
            driver.report(name, seconds=float(job.spec.name))
        [(_, job_id, _)] = driver.held(name)
        ends[name] = driver.now + float(driver.pool.state.jobs[job_id].spec.name)
    return {owner: used[owner] / used.total() for owner in seconds}


@pytest.mark.parametrize("processors", [12, 4, 2, 1])
def test_shares_follow_the_weights_within_a_twentieth_over_an_hour(processors: int) -> None:
    """Also where a third of a processor belongs to somebody, and tasks take whole ones."""
    driver = PoolDriver()
    names = crowd(driver, processors)
    weights(driver, ada=1, bob=2, eve=3)
    used = used_in_an_hour(driver, names, ada=5, bob=11, eve=3)
    assert used == pytest.approx({"ada": 1 / 6, "bob": 2 / 6, "eve": 3 / 6}, rel=0.05)


def test_whoever_waits_for_what_nobody_has_does_not_change_the_shares_of_others() -> None:
    driver = PoolDriver()
    names = crowd(driver, 2)
    weights(driver, ada=1, eve=3)
    driver.submit(10, owner="bob", cpus=64)
    for _ in range(2):
        used = used_in_an_hour(driver, names, ada=5, eve=3)
    assert used == pytest.approx({"ada": 1 / 4, "eve": 3 / 4}, rel=0.05)


def seconds_until_served(driver: PoolDriver, owner: str, within: int) -> int:
    """How long an owner who has nothing waits, while each second all other tasks end."""
    for second in range(within):
        if at_workers(driver)[owner]:
            return second
        driver.live(1)
        for name in driver.pool.state.workers:
            driver.report(name, seconds=1.0)
    raise AssertionError(f"{owner} starves")


def test_who_had_what_nobody_else_wanted_does_not_have_to_make_up_for_it() -> None:
    driver = PoolDriver()
    names = crowd(driver, 8)
    driver.submit(1000, owner="ada")
    driver.submit(1000, owner="bob")
    assert at_workers(driver) == {"ada": 8}
    driver.live(600)
    for name in names:
        driver.report(name, seconds=600.0)
    assert at_workers(driver)["ada"] >= 1


def test_who_had_a_processor_for_a_week_waits_for_minutes_only() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(1000, owner="ada")
    driver.submit(1000, owner="bob")
    assert at_workers(driver) == {"ada": 1}
    driver.live(7 * 86400, step=3600)
    driver.report("w", seconds=7 * 86400.0)
    assert 300 < seconds_until_served(driver, "ada", 1000) <= MOST_AHEAD_SECONDS + 10


def test_usage_is_what_ran_by_its_weight_and_is_forgotten_by_half() -> None:
    driver = PoolDriver(Config(usage_half_life_seconds=1000.0))
    driver.join("w", cpus=8)
    driver.submit(1, owner="ada", cpus=4)
    driver.submit(1, owner="bob", cpus=64)
    driver.live(10)
    ada = driver.pool.state.sharers.of("ada")
    assert ada.usage(driver.now, 1000.0) == pytest.approx(40, rel=0.02)
    driver.report("w", seconds=10)
    assert ada.usage(driver.now + 1000, 1000.0) == pytest.approx(20, rel=0.02)


def test_who_used_more_than_his_share_lately_gets_less_but_never_under_half() -> None:
    driver = PoolDriver()
    sharers = driver.pool.state.sharers
    sharers.put(UserRecord(name="ada", usage=1e9, usage_at=driver.now))
    driver.hold_back()
    crowd(driver, 26)
    for owner in ("ada", "bob", "eve"):
        driver.submit(1000, owner=owner)
    driver.let_go()
    assert at_workers(driver)["ada"] == 3, "half a share beside two double ones: a ninth"


def test_who_has_only_what_was_adopted_is_looked_at() -> None:
    driver = PoolDriver()
    crowd(driver, 1)
    driver.submit(1)
    held = driver.held("w0")
    driver.restart()
    driver.join("w0", holds=held)
    ada = driver.pool.state.sharers.of("ada")
    assert ada.is_active
    assert not ada.turns
    driver.submit(1, owner="bob")
    driver.wait(2.0)
    assert driver.pool.state.sharers.looks_at(ada)


def test_of_many_who_have_nothing_those_are_remembered_who_used_the_most() -> None:
    driver = PoolDriver(Config(most_idle_users=2))
    driver.join("w")
    driver.pool.state.sharers.put(UserRecord(name="heavier", weight=2.0))
    driver.submit(1, owner="waits", held=True)
    for place, seconds in enumerate((30.0, 10.0, 40.0, 20.0)):
        driver.submit(1, owner=f"guest-{place}")
        driver.live(seconds)
        driver.report("w", seconds=seconds)
    driver.live(USAGE_RECORD_SECONDS + 1)
    left = {"heavier", "waits", "guest-0", "guest-2"}
    assert {user.name for user in driver.pool.sharers.users()} == left
    gone = [record.name for record in driver.records if isinstance(record, UserGone)]
    assert sorted(gone) == ["guest-1", "guest-3"]
    driver.submit(1, owner="guest-1", held=True)
    driver.submit(1, owner="new", held=True)
    numbers = [user.number for user in driver.pool.sharers.users()]
    assert len(set(numbers)) == len(numbers), "no two have the same place"
    driver.restart()
    known = {user.name for user in driver.pool.sharers.users()}
    assert known == {"waits", "guest-0", "guest-2", "guest-1", "new"}


# -- groups ----------------------------------------------------------------------------------------


def test_members_of_a_group_share_its_weight() -> None:
    driver = PoolDriver()
    sharers = driver.pool.state.sharers
    for name in ("ada", "bob", "eve"):
        sharers.put(UserRecord(name=name, group="physics"))
    driver.put(GroupChange("physics", ShareChange(weight=1)))
    driver.hold_back()
    crowd(driver, 24)
    for owner in ("ada", "bob", "eve", "zoe"):
        driver.submit(1000, owner=owner)
    driver.let_go()
    assert at_workers(driver) == {"ada": 4, "bob": 4, "eve": 4, "zoe": 12}


def test_what_members_do_not_want_stays_in_their_group() -> None:
    driver = PoolDriver()
    sharers = driver.pool.state.sharers
    for name in ("ada", "bob"):
        sharers.put(UserRecord(name=name, group="physics"))
    driver.hold_back()
    crowd(driver, 24)
    driver.submit(1000, owner="ada")
    driver.submit(1000, owner="zoe")
    driver.let_go()
    assert at_workers(driver) == {"ada": 12, "zoe": 12}
