"""Weights, bounds and usage of users and groups: set by admins, kept over restarts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.handlers.reporting import USAGE_RECORD_SECONDS
from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import GroupRecord, UserRecord
from kestrelctl.core.model.setting import SettingGone
from kestrelctl.core.model.share_change import GroupChange, ShareChange


def set_user(
    driver: PoolDriver,
    name: str = "ada",
    group: str | None = None,
    reset_usage: bool = False,
    **change: Any,
) -> fx.Answer:
    driver.tell(
        ev.SetUser(
            at=driver.now,
            cause="root",
            request="s",
            name=name,
            group=group,
            reset_usage=reset_usage,
            change=ShareChange(**change),
        )
    )
    return driver.answers[-1]


def set_group(driver: PoolDriver, name: str = "physics", **change: Any) -> fx.Answer:
    return driver.put(GroupChange(name, ShareChange(**change)))


def drop_group(driver: PoolDriver, name: str = "physics") -> fx.Answer:
    return driver.drop(GroupRecord, name)


def ada(driver: PoolDriver) -> Sharer:
    return driver.pool.sharers.of("ada")


def usage(driver: PoolDriver) -> float:
    return ada(driver).usage(driver.now, driver.pool.config.usage_half_life_seconds)


def user_records(driver: PoolDriver) -> list[UserRecord]:
    return [record for record in driver.records if isinstance(record, UserRecord)]


def test_what_is_not_named_stays_as_it_is() -> None:
    driver = PoolDriver()
    set_group(driver)
    set_user(driver, weight=2.0, max_running=5, limits={"gpus": 4.0, "memory": 2048.0})
    set_user(driver, group="physics", max_queued=0, limits={"gpus": 0.5})
    record = ada(driver).record
    assert (record.weight, record.max_running, record.max_queued) == (2.0, 5, 0)
    assert record.limits == {"gpus": 500, "memory": 2_048_000}
    assert record.group == "physics"


def test_none_takes_a_bound_away_and_nothing_at_all_is_a_bound() -> None:
    driver = PoolDriver()
    set_user(driver, max_running=5, max_queued=7, limits={"gpus": 0.0, "cpus": 8.0})
    assert ada(driver).record.limits == {"gpus": 0, "cpus": 8000}
    set_user(driver, max_running=None, max_queued=None, limits={"gpus": None})
    record = ada(driver).record
    assert (record.max_running, record.max_queued, record.limits) == (None, None, {"cpus": 8000})


def test_a_group_is_taken_from_a_user_by_an_empty_name() -> None:
    driver = PoolDriver()
    set_group(driver)
    set_user(driver, group="physics")
    set_user(driver, weight=3.0)
    assert ada(driver).record.group == "physics"
    set_user(driver, group="")
    assert ada(driver).record.group == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"weight": 0.0}, "a weight is at least 0.000001 and at most 1,000,000, not 0"),
        ({"weight": -1.0}, "not -1"),
        ({"weight": math.nan}, "not nan"),
        ({"weight": math.inf}, "not inf"),
        ({"weight": 1_000_001.0}, "not 1,000,001"),
        ({"max_running": -1}, "max_running is 0 to"),
        ({"max_queued": 1 << 60}, "max_queued is 0 to"),
        ({"limits": {"GPUs": 1.0}}, "'GPUs' is no name of an asset"),
        ({"limits": {"gpus": -1.0}}, "a limit on gpus is 0, or 0.001 to less than 2^60, not -1"),
        ({"limits": {"gpus": math.inf}}, "not inf"),
        ({"limits": {"gpus": math.nan}}, "not nan"),
        ({"limits": {f"a{n}": 1.0 for n in range(17)}}, "limits on at most 16 assets, not 17"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(change: dict[str, Any], said: str) -> None:
    driver = PoolDriver()
    set_group(driver)
    before = len(driver.records)
    for answer in (set_user(driver, **change), set_group(driver, **change)):
        assert answer.error == "usage"
        assert said in answer.message
    assert driver.records[before:] == []


def test_limits_that_a_user_has_count_with_those_that_are_added() -> None:
    driver = PoolDriver()
    limits = {f"a{n}": 1.0 for n in range(16)}
    assert set_user(driver, limits=limits).error is None
    assert set_user(driver, limits={"b": 1.0}).error == "usage"
    assert set_user(driver, limits={"b": 1.0, "a3": None}).error is None
    assert len(ada(driver).record.limits) == 16


def test_nobody_is_put_into_a_group_that_is_not_there() -> None:
    driver = PoolDriver()
    answer = set_user(driver, group="phsyics")
    assert (answer.error, answer.message) == ("not-found", "the pool has no group phsyics")
    assert "group set phsyics" in answer.hint


def test_a_group_with_members_stays() -> None:
    driver = PoolDriver()
    set_group(driver)
    for name in ("ada", "bob"):
        set_user(driver, name, group="physics")
    answer = drop_group(driver)
    assert (answer.error, answer.message) == ("usage", "group physics has 2 members")
    for name in ("ada", "bob"):
        set_user(driver, name, group="")
    assert drop_group(driver).error is None
    assert SettingGone(GroupRecord, "physics") in driver.records
    assert drop_group(driver).error == "not-found"


def test_what_is_set_outlasts_a_restart() -> None:
    driver = PoolDriver()
    set_group(driver, weight=3.0, max_queued=8)
    set_user(driver, group="physics", weight=2.0, max_running=5, limits={"gpus": 1.0})
    before = ada(driver).record
    driver.restart()
    assert ada(driver).record == before
    assert driver.pool.sharers.groups() == [GroupRecord(name="physics", weight=3.0, max_queued=8)]
    set_user(driver, group="")
    drop_group(driver)
    driver.restart()
    assert driver.pool.sharers.groups() == driver.pool.settings(GroupRecord) == []
    assert ada(driver).record.group == ""


@pytest.mark.parametrize("whose", ["his own", "his group's"])
def test_a_bound_counts_what_runs_already(whose: str) -> None:
    driver = PoolDriver()
    set_group(driver)
    set_user(driver, group="physics")
    driver.join("w", cpus=8)
    driver.submit(4)
    if whose == "his own":
        set_user(driver, max_running=5)
    else:
        set_group(driver, max_running=5)
    driver.submit(4)
    assert driver.worker("w").running == 5
    set_user(driver, max_running=None, group="")
    assert driver.worker("w").running == 8
    assert drop_group(driver).error is None


def test_a_group_that_is_taken_away_bounds_nobody() -> None:
    driver = PoolDriver()
    set_group(driver, max_running=0)
    set_user(driver, group="physics")
    driver.join("w", cpus=8)
    driver.submit(4)
    assert driver.worker("w").running == 0
    set_group(driver, max_running=None)
    assert driver.worker("w").running == 4


def test_a_weight_counts_at_once() -> None:
    driver = PoolDriver()
    set_user(driver, "ada", weight=3.0)
    driver.hold_back()
    driver.submit(20, owner="bob")
    driver.submit(20, owner="ada")
    driver.let_go()
    driver.join("w", cpus=8)
    owners = [task.job.owner for task in driver.worker("w").held.values()]
    assert (owners.count("ada"), owners.count("bob")) == (6, 2)


# -- usage -----------------------------------------------------------------------------------------


def at_work(driver: PoolDriver) -> PoolDriver:
    """Ada runs two tasks, and has more that wait."""
    driver.join("w", cpus=2)
    driver.submit(20)
    return driver


def test_usage_is_recorded_once_a_minute_and_goes_on_after_a_restart() -> None:
    driver = at_work(PoolDriver())
    before = len(user_records(driver))
    driver.live(2 * USAGE_RECORD_SECONDS)
    used = usage(driver)
    assert used == pytest.approx(2 * 2 * USAGE_RECORD_SECONDS, rel=0.01)
    assert len(user_records(driver)) - before == 2
    driver.live(USAGE_RECORD_SECONDS - 1)
    more = usage(driver)
    assert more > used
    driver.restart()
    assert more - 2 * USAGE_RECORD_SECONDS - 5 < usage(driver) < more


def test_tasks_that_take_long_count_while_nobody_waits() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(2)
    driver.live(USAGE_RECORD_SECONDS + 1)
    assert user_records(driver)[-1].usage == pytest.approx(2 * USAGE_RECORD_SECONDS, rel=0.05)


def test_what_a_worker_has_when_the_manager_restarts_counts_from_then_on() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(2)
    held = driver.held("w")
    driver.restart()
    driver.join("w", cpus=2, holds=held)
    driver.live(10)
    assert usage(driver) == pytest.approx(2 * 10, rel=0.01)


def test_of_users_who_used_nothing_since_nothing_is_recorded() -> None:
    driver = at_work(PoolDriver())
    driver.submit(3, owner="bob")
    driver.live(USAGE_RECORD_SECONDS + 1)
    driver.finish_all()
    driver.live(USAGE_RECORD_SECONDS + 1)
    count = len(user_records(driver))
    driver.live(3 * USAGE_RECORD_SECONDS)
    assert len(user_records(driver)) == count
    driver.restart()
    driver.live(3 * USAGE_RECORD_SECONDS)
    assert user_records(driver)[count:] == []


def test_setting_a_user_keeps_his_usage_unless_it_is_reset() -> None:
    driver = at_work(PoolDriver())
    driver.live(30)
    used = usage(driver)
    set_user(driver, weight=2.0)
    assert usage(driver) == pytest.approx(used, rel=0.05)
    assert user_records(driver)[-1].usage == pytest.approx(used, rel=0.05)
    set_user(driver, reset_usage=True)
    assert user_records(driver)[-1].usage == 0.0
    driver.restart()
    assert usage(driver) == 0.0


# -- how many tasks there may be -------------------------------------------------------------------


def refused(driver: PoolDriver) -> str | None:
    return driver.answers[-1].error


def test_a_user_is_told_of_his_one_task_in_the_singular() -> None:
    driver = PoolDriver()
    set_user(driver, max_queued=1)
    driver.submit(1)
    driver.submit(1)
    assert driver.answers[-1].message == (
        "ada has 1 task that has not ended, and may have 1; 1 more would be too many"
    )


def test_a_user_has_no_more_tasks_than_he_may() -> None:
    driver = PoolDriver()
    set_user(driver, max_queued=10)
    driver.submit(7)
    driver.submit(4)
    assert driver.answers[-1].error == "over-quota"
    assert driver.answers[-1].message == (
        "ada has 7 tasks that have not ended, and may have 10; 4 more would be too many"
    )
    assert "--max-queued" in driver.answers[-1].hint
    driver.submit(4, owner="bob")
    assert refused(driver) is None
    driver.submit(3)
    assert refused(driver) is None
    assert len(driver.pool.state.jobs) == 3


def test_what_has_ended_makes_room() -> None:
    driver = PoolDriver()
    set_user(driver, max_queued=4)
    driver.join("w", cpus=4)
    driver.submit(4)
    driver.report("w", *driver.held("w")[:2])
    driver.submit(3)
    assert refused(driver) == "over-quota"
    driver.submit(2)
    assert refused(driver) is None


def test_members_of_a_group_have_their_tasks_together() -> None:
    driver = PoolDriver()
    set_group(driver, max_queued=10)
    for name in ("ada", "bob"):
        set_user(driver, name, group="physics")
    driver.submit(6, owner="ada")
    driver.submit(5, owner="bob")
    assert refused(driver) == "over-quota"
    assert driver.answers[-1].message.startswith("group physics has 6 tasks")
    assert "group set physics" in driver.answers[-1].hint
    driver.submit(5, owner="carl")
    assert refused(driver) is None


def test_the_same_submission_again_is_no_new_one() -> None:
    driver = PoolDriver()
    set_user(driver, max_queued=5)
    spec = JobSpec(program=Program(argv=("true",)), count=5)
    for _ in range(2):
        driver.submit_under("k", spec)
    assert (refused(driver), driver.answers[-1].repeated) == (None, True)


def test_a_retry_counts_what_it_brings_back() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    job = driver.submit(4, max_failures=1)
    driver.fail("w", *driver.held("w"))
    set_user(driver, max_queued=3)
    answer = driver.retry(job)
    assert answer.error == "over-quota"
    assert "4 more" in answer.message
    assert driver.pool.state.jobs == {}
    set_user(driver, max_queued=4)
    assert driver.retry(job).error is None


def test_a_retry_of_a_cancelled_job_counts_what_never_started() -> None:
    driver = PoolDriver()
    job = driver.submit(50)
    driver.cancel(job)
    set_user(driver, max_queued=49)
    assert driver.retry(job).error == "over-quota"
    set_user(driver, max_queued=50)
    assert driver.retry(job).error is None


def test_a_retry_in_an_active_job_counts_only_what_it_brings_back() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    job = driver.submit(4, max_failures=1)
    driver.fail("w", *driver.held("w")[:2])
    set_user(driver, max_queued=4)
    assert driver.retry(job).error is None
    assert driver.pool.state.jobs[job].remaining == 4


def test_more_copies_of_a_service_count() -> None:
    driver = PoolDriver()
    set_user(driver, max_queued=5)
    job = driver.submit(3, service=True)

    def scale(copies: int) -> str | None:
        driver.tell(ev.ScaleService(at=driver.now, request="s", job_id=job, copies=copies))
        return refused(driver)

    assert scale(6) == "over-quota"
    assert scale(5) is None
    set_user(driver, max_queued=1)
    assert scale(2) is None


def test_weights_so_small_that_nothing_is_left_of_them_are_refused() -> None:
    driver = PoolDriver()
    driver.join("w1")
    tiny = 1e-200
    set_group(driver, weight=tiny)
    set_user(driver, group="physics", weight=tiny)
    driver.submit(1, owner="ada")
    driver.wait(3600.0)
    assert driver.held("w1")
