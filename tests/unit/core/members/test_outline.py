"""Assets of which nobody knows how much a worker has: the pool finds out by what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from poolkit import PoolDriver
from refusingkit import Machine, ask_for, estimate, join_unknown, refuse, run

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.members.outline import Outline, exhausted
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import AssetChange, WorkerAd, bookable, changed
from kestrelctl.core.model.worker.ad_rules import problem_with_ad

UNKNOWN = WorkerAd(assets={"cpus": 100.0}, unknown={"db": 75})


def sevens(driver: PoolDriver, name: str = "w") -> int:
    """Has the estimate grow to seven, while seven tasks run."""
    job_id = ask_for(driver, 10_000)
    for _ in range(6):
        driver.report(name, *driver.held(name))
    assert estimate(driver, name) == len(driver.held(name)) == 7
    return job_id


# -- the estimate ----------------------------------------------------------------------------------


def test_it_starts_at_one_unit() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 10)
    assert len(driver.held("w")) == 1
    assert estimate(driver) == 1


def test_it_grows_by_what_a_task_took_when_all_of_it_was_taken() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 10)
    driver.report("w")
    assert estimate(driver) == len(driver.held("w")) == 2


def test_what_is_not_all_taken_says_nothing_of_more() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    driver.cancel(1)
    driver.report("w", *driver.held("w"), outcome=Outcome.KILLED)
    ask_for(driver, 3)
    driver.report("w", *driver.held("w"))
    assert estimate(driver) == 7


def test_a_failure_says_nothing_of_more_or_less() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 10, max_failures=9)
    driver.fail("w", exit_code=1)
    assert estimate(driver) == 1


def test_a_refusal_halves_it() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    refuse(driver, "w", driver.held("w")[-1])
    assert estimate(driver) == 3
    assert len(driver.held("w")) == 6
    driver.report("w", *driver.held("w")[:4])
    assert len(driver.held("w")) == 3


def test_refusals_of_what_was_sent_before_do_not_halve_it_again() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    refuse(driver, "w", *driver.held("w")[-3:])
    assert estimate(driver) == 3


def test_a_refusal_counts_though_another_task_has_just_ended_well() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    refused = driver.held("w")[-1]
    driver.report("w")
    assert estimate(driver) == 8
    refuse(driver, "w", refused)
    assert estimate(driver) == 4


def test_successes_of_what_was_sent_before_a_change_do_not_raise_it() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    refuse(driver, "w", driver.held("w")[-1])
    for _ in range(6):
        driver.report("w")
    assert estimate(driver) == 3
    driver.report("w")
    assert estimate(driver) == 4


def test_the_second_refusal_counts_if_its_attempt_was_sent_after_the_first() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    refuse(driver, "w", driver.held("w")[-1])
    driver.report("w", *driver.held("w"))
    refuse(driver, "w", driver.held("w")[-1])
    assert estimate(driver) == 1


def test_an_amount_that_is_refused_alone_is_tried_again_after_a_pause() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 1000)
    refuse(driver, "w", *driver.held("w"))
    assert (estimate(driver), driver.held("w")) == (0, [])
    driver.wait(4.4)
    assert driver.held("w") == []
    driver.wait(0.6)
    assert estimate(driver) == len(driver.held("w")) == 1


def test_the_pause_is_of_the_asset_alone() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 10)
    refuse(driver, "w", *driver.held("w"))
    other = driver.submit(5)
    assert driver.jobs_at("w") == [other] * 5


def test_one_that_asks_for_more_than_is_thought_is_tried_where_nothing_is_taken() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 10, db=5)
    assert estimate(driver) == 5
    driver.report("w")
    assert estimate(driver) == 10
    assert len(driver.held("w")) == 2


def test_one_that_asks_for_more_is_not_tried_beside_others() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    small = ask_for(driver, 1)
    large = ask_for(driver, 1, db=5)
    assert (driver.jobs_at("w"), estimate(driver)) == ([small], 1)
    driver.report("w")
    assert driver.jobs_at("w") == [large]


def test_one_that_asks_for_more_is_tried_although_less_was_waiting_beside_it() -> None:
    """When both workers are looked at, a smaller task waits: it fits, and goes to one of them."""
    driver = PoolDriver()
    driver.hold_back()
    join_unknown(driver, "a")
    join_unknown(driver, "b")
    small = ask_for(driver, 1)
    large = ask_for(driver, 1, db=5)
    driver.let_go()
    [idle] = [name for name in ("a", "b") if small not in driver.jobs_at(name)]
    driver.live(2)
    assert driver.jobs_at(idle) == [large]


def test_a_worker_that_is_kept_for_a_large_task_tries_it() -> None:
    driver = PoolDriver()
    machine = Machine(driver, "w", limit=5)
    ask_for(driver, 10_000)
    large = ask_for(driver, 1, db=30)
    run(driver, 30, machine)
    assert max(machine.estimates) <= 6
    run(driver, 90, machine)
    assert large in driver.ended


def test_parts_of_a_unit_grow_by_parts() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 100, db=0.25)
    assert len(driver.held("w")) == 4
    driver.report("w", *driver.held("w"))
    assert estimate(driver) == 1.25
    refuse(driver, "w", driver.held("w")[-1])
    assert estimate(driver) == 0.5


def test_what_has_run_for_a_minute_was_not_refused() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 10, service=True)
    driver.live(59)
    assert estimate(driver) == 1
    driver.live(2)
    assert estimate(driver) == len(driver.held("w")) == 2
    driver.live(57)
    assert estimate(driver) == 2
    driver.live(4)
    assert estimate(driver) == len(driver.held("w")) == 3


# -- in the long run -------------------------------------------------------------------------------


def test_it_stays_near_the_limit_and_nobody_starves() -> None:
    driver = PoolDriver()
    machine = Machine(driver, "w", limit=7)
    job_id = ask_for(driver, 2_000)
    run(driver, 300, machine)
    later = machine.estimates[len(machine.estimates) // 10 :]
    assert min(later) >= 3
    assert max(later) <= 8
    assert sum(later) / len(later) > 5
    # Seven at once take 2.45 seconds each; two thirds of what they could do is done.
    assert machine.done > 300 / 2.45 * 7 * 2 / 3
    assert machine.refused < machine.done / 10
    job = driver.pool.job(job_id)
    assert job is not None
    assert job.counts.failed == job.counts.lost == 0
    # The tasks that were refused ran in the end: nobody of the first half waits any more.
    assert min(job.live) > machine.done - 100


@settings(max_examples=10, deadline=None)
@given(
    limit=st.integers(1, 9),
    lasts=st.lists(st.sampled_from([0.05, 0.3, 1.0, 2.5, 7.0]), min_size=1, max_size=5),
)
def test_it_stays_between_half_of_any_limit_and_one_more(limit: int, lasts: list[float]) -> None:
    driver = PoolDriver()
    machine = Machine(driver, "w", limit, lasts)
    job_id = ask_for(driver, 100_000)
    run(driver, 40, machine)
    found = machine.estimates
    assert max(found) <= limit + 1
    falls = [n for n in range(1, len(found)) if found[n] < found[n - 1]]
    if falls:
        assert min(found[falls[0] :]) >= max(1, (limit + 1) // 2)
    driver.cancel(job_id)
    driver.report("w", *driver.held("w"))
    worker = driver.worker("w")
    assert worker.free == worker.capacity(), "a release restores exactly"


def test_two_workers_have_limits_of_their_own_and_are_one_class() -> None:
    driver = PoolDriver()
    small, large = Machine(driver, "small", limit=3), Machine(driver, "large", limit=12)
    ask_for(driver, 10_000)
    run(driver, 120, small, large)
    assert max(small.estimates[240:]) <= 4
    assert min(large.estimates[240:]) >= 6
    assert max(large.estimates) <= 13
    assert (small.most, large.most) == (3, 12)
    [supply] = [each for each in driver.pool.state.supply.classes() if each.members]
    assert supply.members == 2


def test_a_limit_that_falls_is_found() -> None:
    driver = PoolDriver()
    machine = Machine(driver, "w", limit=20)
    ask_for(driver, 10_000)
    run(driver, 80, machine)
    assert max(machine.estimates) > 15
    machine.limit = 3
    run(driver, 30, machine)
    before = len(machine.estimates)
    run(driver, 100, machine)
    assert max(machine.estimates[before:]) <= 4


def test_a_limit_of_none_costs_few_starts() -> None:
    driver = PoolDriver()
    machine = Machine(driver, "w", limit=0)
    job_id = ask_for(driver, 10_000)
    run(driver, 100, machine)
    assert 10 <= machine.refused <= 21
    machine.limit = 5
    run(driver, 100, machine)
    assert machine.done > 50
    job = driver.pool.job(job_id)
    assert job is not None
    assert not job.counts.failed


# -- refusals --------------------------------------------------------------------------------------


def test_a_refused_task_has_not_failed_and_runs_elsewhere() -> None:
    driver = PoolDriver()
    join_unknown(driver, "a")
    job_id = ask_for(driver, 1, max_failures=1)
    join_unknown(driver, "b")
    refuse(driver, "a")
    assert (driver.jobs_at("a"), driver.jobs_at("b")) == ([], [job_id])
    assert driver.worker("a").tasks_failed == 0
    assert driver.pool.totals.retries["refusal"] == 1
    assert driver.pool.totals.losses.total() == 0


def test_a_task_that_is_refused_again_and_again_pauses_longer_each_time() -> None:
    driver = PoolDriver()
    for n in range(6):
        join_unknown(driver, f"w{n}")
    ask_for(driver, 1)
    pauses = []
    for _ in range(5):
        [name] = [name for name in driver.pool.workers if driver.held(name)]
        refuse(driver, name)
        began = driver.now
        while not any(driver.held(name) for name in driver.pool.workers):
            driver.live(0.5, step=0.5)
        pauses.append(driver.now - began)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0]


def test_only_a_task_that_took_of_the_asset_can_say_that_there_is_no_more() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    job_id = driver.submit(1, max_failures=1)
    refuse(driver, "w")
    assert driver.ended == [job_id]
    assert estimate(driver) == 1


@pytest.mark.parametrize(
    "how",
    [
        {"exit_code": 74},
        {"exit_code": 0, "signal": 75},
        {"exit_code": 75, "reason": "time-limit"},
    ],
)
def test_other_ends_are_failures(how: dict[str, object]) -> None:
    driver = PoolDriver()
    join_unknown(driver)
    job_id = ask_for(driver, 1)
    driver.fail("w", **how)
    assert driver.ended == [job_id]
    assert estimate(driver) == 1


def test_a_cleanup_that_failed_takes_nothing_back() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 1)
    driver.fail("w", exit_code=75, reason="cleanup-failed: exit code 1")
    assert driver.ended == []
    assert estimate(driver) == 0


def test_each_asset_has_an_exit_status_of_its_own() -> None:
    driver = PoolDriver()
    join_unknown(driver, db=75, tapes=69)
    spec = ev.JobSpec(
        program=Program(argv=("true",)), request={"cpus": 1.0, "db": 1.0, "tapes": 1.0}
    )
    driver.tell(ev.Submit(at=driver.now, request="r", owner="ada", spec=spec))
    refuse(driver, "w", status=69)
    assert estimate(driver, asset="tapes") == 0
    assert estimate(driver, asset="db") == 1


FEW = Config(lone_refusals=5)


def refused_until_over(driver: PoolDriver, job_id: int, most: int = 100) -> int:
    """How often a worker's only task has said that there is no more when its job was over."""
    for times in range(most):
        if job_id in driver.ended:
            return times
        while not driver.held("w"):
            driver.live(1.0)
        refuse(driver, "w", *driver.held("w"))
    return most


def test_a_task_that_is_refused_where_nothing_else_takes_any_fails_in_the_end() -> None:
    driver = PoolDriver(FEW)
    join_unknown(driver)
    job_id = ask_for(driver, 1)
    assert refused_until_over(driver, job_id) == 5
    assert driver.pool.totals.retries["refusal"] == 4
    assert driver.pool.totals.tasks_failed == 1


def test_what_is_away_for_most_of_an_hour_fails_no_task() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    job_id = ask_for(driver, 1)
    began = driver.now
    refused_until_over(driver, job_id)
    assert 2_700.0 < driver.now - began < 3_600.0


def test_each_failure_by_refusals_is_one_of_those_that_a_job_allows() -> None:
    driver = PoolDriver(FEW)
    join_unknown(driver)
    job_id = ask_for(driver, 1, max_failures=3)
    assert refused_until_over(driver, job_id) == 15


def test_a_refusal_where_others_take_the_asset_is_not_counted() -> None:
    driver = PoolDriver(Config(lone_refusals=1))
    join_unknown(driver)
    ask_for(driver, 1)
    driver.live(61.0)  # it is accepted, and one more fits
    job_id = ask_for(driver, 1)
    assert len(driver.held("w")) == 2
    refuse(driver, "w", driver.held("w")[-1])
    assert job_id not in driver.ended
    driver.report("w")
    driver.live(2.0)
    refuse(driver, "w")
    assert job_id in driver.ended


def test_a_copy_of_a_service_may_be_refused_for_ever() -> None:
    driver = PoolDriver(FEW)
    join_unknown(driver)
    job_id = ask_for(driver, 1, service=True)
    assert refused_until_over(driver, job_id, most=20) == 20
    assert driver.pool.totals.retries["refusal"] == 20


def test_a_copy_of_a_service_is_refused_like_any_task() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 1, service=True)
    refuse(driver, "w")
    assert driver.pool.totals.retries["refusal"] == 1
    assert estimate(driver) == 0


def test_refusals_quarantine_nobody() -> None:
    driver = PoolDriver()
    join_unknown(driver, "a")
    join_unknown(driver, "b")
    ask_for(driver, 1000)
    for _ in range(30):
        driver.report("b", *driver.held("b"))
        refuse(driver, "a", *driver.held("a"))
        driver.wait(5)
    assert not driver.worker("a").quarantined_until


# -- what waits there, comes back, changes ---------------------------------------------------------


def test_nothing_waits_at_the_worker_for_what_only_the_pool_counts() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 10_000)
    for _ in range(10):
        driver.report("w", *driver.held("w"), seconds=0.01)
    assert driver.worker("w").queued == 0
    assert len(driver.held("w")) == 11


def test_a_worker_books_more_than_anybody_asks_for() -> None:
    agent = Agent(bookable(UNKNOWN))
    agent.resize(bookable(UNKNOWN))
    assert agent.capacity["db"] == agent.free["db"] > 1 << 63


def test_what_a_worker_runs_when_the_manager_starts_shows_that_there_is_so_much() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    held = driver.held("w")
    driver.restart()
    assert estimate(driver) == 1
    driver.tell(
        ev.Joined(
            at=driver.now,
            worker="w",
            ad=UNKNOWN,
            incarnation="one",
            holds=[(*attempt, 0) for attempt in held],
            claims=[{"cpus": 1000, "db": 1000}],
            seals=driver.seals("w", held),
        )
    )
    assert estimate(driver) == driver.worker("w").running == 7


def test_a_worker_that_comes_back_keeps_its_estimate() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    driver.lose("w")
    join_unknown(driver)
    assert estimate(driver) == len(driver.held("w")) == 7


def test_a_worker_may_come_to_know_how_much_it_has_and_to_know_no_more() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    known = changed(UNKNOWN, AssetChange(amounts={"db": 9.0}), {})
    driver.tell(ev.Resized(at=driver.now, worker="w", ad=known))
    assert estimate(driver) == len(driver.held("w")) == 9
    again = changed(known, AssetChange(unknown={"db": 75}), {})
    assert again == UNKNOWN
    driver.tell(ev.Resized(at=driver.now, worker="w", ad=again))
    assert estimate(driver) == len(driver.held("w")) == 9


def test_a_suspect_is_charged_no_more_of_it_than_it_asked_for() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    job_id = ask_for(driver, 1, max_losses=9)
    for _ in range(3):
        driver.lose("w")
        driver.wait(60)
        join_unknown(driver)
    assert driver.jobs_at("w") == [job_id]
    assert driver.worker("w").free["cpus"] < 99_000
    assert driver.worker("w").free["db"] == 0


# -- what is said ----------------------------------------------------------------------------------


def test_explain_says_that_it_is_an_estimate() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    job = driver.pool.job(ask_for(driver, 10))
    assert job is not None
    [group] = driver.pool.explain(job, driver.now).groups
    assert group.refusal.reason is Reason.BUSY
    assert group.refusal.wanted == "1 db"
    assert group.refusal.found == "0 db free of ~1 db"


def test_the_census_counts_estimates() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    sevens(driver)
    found = driver.pool.census(driver.now)
    assert found.capacity["db"] == 7000
    assert found.free["db"] == 0
    assert found.workers[0].capacity["db"] == 7000


def test_a_story_tells_of_a_refusal() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 1)
    refuse(driver, "w")
    told = [(r.what, r.detail) for r in driver.records if getattr(r, "what", "") == "refused"]
    assert told == [("refused", "no more db: exit code 75")]


def test_the_pool_lacks_processors_and_never_what_nobody_knows() -> None:
    driver = PoolDriver()
    join_unknown(driver, cpus=4)
    ask_for(driver, 10)
    [unmet] = driver.pool.shortage().unmet.values()
    assert unmet == 6


def test_requirements_see_nothing_of_it() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    job = driver.pool.job(ask_for(driver, 1, requirements="TARGET.Db >= 1"))
    assert job is not None
    [group] = driver.pool.explain(job, driver.now).groups
    assert group.refusal.reason is Reason.UNDEFINED


# -- ads that cannot be meant ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ad", "problem"),
    [
        (WorkerAd(unknown={"db": 0}), "from 1 to 255"),
        (WorkerAd(unknown={"db": 256}), "from 1 to 255"),
        (WorkerAd(unknown={"DB": 75}), "is no name of an asset"),
        (WorkerAd(unknown={"memory": 75}), "a worker always says"),
        (WorkerAd(assets={"cpus": 1.0, "db": 2.0}, unknown={"db": 75}), "both said and unknown"),
        (WorkerAd(shared=("db",), unknown={"db": 75}), "both said and unknown"),
        (WorkerAd(unknown={"db": 75, "tapes": 75}), "cannot mean both: no more db"),
        (WorkerAd(unknown={f"a{n}": n + 1 for n in range(16)}), "at most 16 assets"),
    ],
)
def test_what_cannot_be_is_refused_with_a_word(ad: WorkerAd, problem: str) -> None:
    assert problem in (problem_with_ad(ad) or "")


def test_what_can_be_is_not_refused() -> None:
    assert problem_with_ad(WorkerAd(unknown={"db": 75, "tapes": 69})) is None


# -- the arithmetic --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "amount", "after"),
    [(8, 1, 4), (7, 1, 3), (2, 1, 1), (1, 1, 0), (9, 4, 4), (5, 4, 4), (4, 4, 0), (3, 4, 0)],
)
def test_half_in_whole_amounts_and_at_least_one(before: int, amount: int, after: int) -> None:
    outline = Outline()
    outline.estimate = before * 1000
    assert outline.after_refusal(5, amount * 1000) == after * 1000


def test_only_the_asset_with_that_status_that_was_charged_is_exhausted() -> None:
    unknown = {"db": 75, "tapes": 69}
    assert exhausted(unknown, {"cpus": 1, "db": 1}, 75) == "db"
    assert exhausted(unknown, {"cpus": 1, "db": 1}, 69) == ""


def test_the_worker_is_sent_the_claim_as_ever() -> None:
    driver = PoolDriver()
    join_unknown(driver)
    ask_for(driver, 1)
    [run_] = driver.of(fx.Run)
    assert run_.claims == [{"cpus": 1000, "db": 1000}]
