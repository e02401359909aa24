"""Which task goes where, and when."""

from __future__ import annotations

from typing import Any

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.handlers.verdict import LETS_OTHERS_BY
from kestrelctl.core.jobs.fair_share import COMMANDS
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import Happening
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.share_change import ShareChange

GIB = 1 << 30


def test_higher_priority_goes_first_and_first_come_within_a_priority() -> None:
    driver = PoolDriver()
    first, urgent, second = (driver.submit(priority=p) for p in (100, 200, 100))
    order = []
    driver.join("w")
    for _ in range(3):
        order += driver.jobs_at("w")
        driver.report("w")
    assert order == [urgent, first, second]


def test_ahead_of_a_job_are_those_at_work_that_come_before_it() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(7, cpus=64)  # it comes first, but takes nothing from anybody
    driver.submit(10)
    behind = driver.submit(5)
    waiting = 10 - len(driver.held("w"))
    assert driver.tasks_ahead(behind) == waiting > 0
    urgent = driver.submit(priority=200)
    assert driver.tasks_ahead(urgent) == 0


def test_no_more_than_max_running_run_at_once() -> None:
    driver = PoolDriver()
    driver.join(*"abcd")
    job = driver.submit(10, max_running=2)
    most = 0
    while driver.pool.state.jobs:
        busy = [name for name in "abcd" if driver.held(name)]
        most = max(most, len(busy))
        driver.report(busy[0])
    assert most == 2
    assert driver.ended == [job]


def test_no_more_than_max_running_are_sent_ahead() -> None:
    driver = PoolDriver()
    driver.join("w", "x")
    driver.submit(100, max_running=3)
    driver.report("x", seconds=0.001)
    for _ in range(5):
        driver.report("w", seconds=0.001)
        assert len(driver.held("w")) + len(driver.held("x")) == 3


def test_no_more_than_max_running_run_after_a_restart_whoever_speaks_first() -> None:
    driver = PoolDriver()
    driver.join("first")
    job_id = driver.submit(3, max_running=1)
    kept = driver.held("first")
    driver.restart()
    driver.join("idle", cpus=4)
    other = driver.submit()
    assert driver.jobs_at("idle") == [other], "others need not wait"
    job = driver.pool.state.jobs[job_id]
    assert driver.pool.explain(job, driver.now).job_reasons[0] == Refusal(Reason.RECOVERING)
    driver.join("first", holds=kept)
    assert driver.jobs_at("idle") == [other]
    driver.report("first")
    assert (driver.jobs_at("first") + driver.jobs_at("idle")).count(job_id) == 1


def test_a_job_at_its_cap_lets_others_by() -> None:
    driver = PoolDriver()
    capped = driver.submit(10, max_running=1, priority=200)
    other = driver.submit(10)
    driver.join("a", "b")
    assert sorted(driver.jobs_at("a") + driver.jobs_at("b")) == [capped, other]


def test_tasks_share_a_worker_as_far_as_cpus_and_memory_reach() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, memory_bytes=4 * GIB)
    driver.submit(10, cpus=2, memory_bytes=GIB)
    assert len(driver.held("w")) == 4, "memory and processors are both used up"
    assert driver.worker("w").free == {"cpus": 0, "memory": 0}


def test_fractions_of_a_processor_add_up() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1)
    driver.submit(10, cpus=0.1)
    assert len(driver.held("w")) == 10


def test_a_small_task_passes_a_large_one_that_does_not_fit() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    large = driver.submit(cpus=4)
    small = driver.submit(cpus=2)
    assert driver.jobs_at("w") == [small]
    assert large in driver.pool.state.jobs


def test_tags_are_required_whatever_their_case() -> None:
    driver = PoolDriver()
    driver.join("plain")
    driver.join("rich", tags=["r", "Matlab"])
    job = driver.submit(requires=("R", "MATLAB"))
    assert (driver.held("plain"), driver.jobs_at("rich")) == ([], [job])


def test_a_tag_is_not_matched_by_a_longer_one() -> None:
    driver = PoolDriver()
    driver.join("w", tags=["PYTHON2.6"])
    driver.submit(requires=("PYTHON",))
    assert driver.held("w") == []


def test_work_is_spread_before_any_worker_is_filled() -> None:
    driver = PoolDriver()
    driver.join(*"abcd", cpus=16)
    driver.submit(8)
    assert max(len(driver.held(name)) for name in "abcd") <= 4


def test_work_is_spread_over_workers_that_came_after_the_last_plan_too() -> None:
    driver = PoolDriver()
    driver.join("a", cpus=16)
    driver.submit(1)
    driver.join(*"bcd", cpus=16)
    driver.submit(8)
    assert max(len(driver.held(name)) for name in "abcd") <= 4


def test_nothing_waits_behind_a_task_of_unknown_or_long_run_time() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(100)
    assert len(driver.held("w")) == 1
    driver.report("w", seconds=1.0)
    assert len(driver.held("w")) == 1


def test_a_worker_is_supplied_ahead_with_short_tasks() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10_000)
    driver.report("w", seconds=0.01)
    assert len(driver.held("w")) == 21, "one that runs, and a fifth of a second's worth behind it"
    (run,) = driver.of(fx.Run)
    assert len(run.spans) == 1, "consecutive tasks travel as one span"
    assert run.spans[0][3] == 21


@pytest.mark.parametrize("seconds", [0.0, 0.0001])
def test_the_supply_is_bounded_however_short_tasks_are(seconds: float) -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10_000)
    driver.report("w", seconds=seconds)
    assert len(driver.held("w")) == 1 + driver.pool.state.config.ahead_per_slot


def test_the_supply_is_topped_up_in_batches() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10_000)
    driver.report("w", seconds=0.01)
    messages = 0
    for _ in range(50):
        driver.report("w", seconds=0.01)
        messages += len(driver.of(fx.Run))
    assert messages <= 12


def test_short_tasks_do_not_wait_behind_another_jobs_long_one() -> None:
    driver = PoolDriver()
    driver.join("learner", "w")
    short = driver.submit(1000)
    driver.report("learner", seconds=0.001)
    driver.lose("learner")
    driver.report("w", *driver.held("w"), seconds=0.001)
    while driver.held("w"):
        driver.cancel(short)
        driver.report("w", *driver.held("w"), outcome=2)
    driver.submit(argv=("sleep", "60"))
    again = driver.submit(1000)
    assert again not in driver.jobs_at("w")


def test_short_tasks_of_one_user_wait_behind_those_of_another() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10_000, owner="ada")
    driver.submit(10_000, owner="bob")
    for _ in range(40):
        driver.report("w", seconds=0.001)
        driver.give_back()
    seen = []
    for _ in range(100):
        driver.report("w", seconds=0.001)
        seen.append(driver.jobs_at("w"))
    assert min(map(len, seen)) > 10
    assert any(set(jobs) == {1, 2} for jobs in seen)


def test_nothing_is_sent_ahead_of_a_task_that_comes_first_and_cannot_wait_there() -> None:
    """Else a worker that is never without short tasks would never be free for any other."""
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10_000)
    for _ in range(3):
        driver.report("w", seconds=0.001)
    urgent = driver.submit(1, cpus=0.5, priority=200, argv=("sleep", "60"))
    driver.give_back()
    for _ in range(40):
        driver.report("w", seconds=0.001)
    assert urgent not in driver.pool.state.jobs


def test_a_short_task_of_another_shape_finds_its_place_among_many_short_ones() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10_000)
    for _ in range(3):
        driver.report("w", seconds=0.001)
    urgent = driver.submit(1, cpus=0.5, priority=200)
    driver.give_back()
    for _ in range(40):
        driver.report("w", seconds=0.001)
    assert urgent not in driver.pool.state.jobs


def flood(driver: PoolDriver, cpus: float = 1) -> None:
    """A worker gets as much ahead as it may have of tasks that take a millisecond."""
    driver.join("learner", cpus=cpus)
    driver.submit(owner="ada")
    driver.report("learner", seconds=0.001)
    driver.submit(100_000, owner="ada")


def flooded(cpus: float = 1, *names: str) -> PoolDriver:
    """Workers have as much ahead as they may have of tasks that take a millisecond."""
    driver = PoolDriver()
    flood(driver, cpus)
    if names:
        driver.join(*names, cpus=cpus)
    return driver


def test_short_tasks_wait_at_a_worker_for_a_fifth_of_a_second() -> None:
    driver = flooded()
    assert len(driver.held("learner")) == 1 + 200
    assert driver.of(fx.Recall) == []


def test_for_somebody_who_comes_workers_give_back_what_would_keep_him_waiting() -> None:
    driver = flooded()
    his = driver.submit(owner="bob", argv=("sleep", "60"))
    [wish] = driver.of(fx.Recall)
    assert len(wish.numbers) == 200 - 16
    driver.give_back()
    for _ in range(1 + 16):
        driver.report("learner", driver.held("learner")[0], seconds=0.001)
    assert driver.jobs_at("learner")[0] == his


def test_no_more_workers_are_asked_for_that_than_he_has_tasks_for() -> None:
    driver = flooded(2, "a", "b", "c")
    driver.submit(3, owner="bob", argv=("sleep", "60"))
    assert len(driver.of(fx.Recall)) == 2, "two tasks run at each"


def test_for_some_time_after_somebody_came_queues_are_short() -> None:
    driver = flooded()
    driver.submit(owner="bob")
    driver.give_back()
    for _ in range(40):
        driver.report("learner", driver.held("learner")[0], seconds=0.001)
    assert driver.jobs_at("learner").count(3) == 0, "his has ended"
    assert 16 <= len(driver.held("learner")) <= 1 + 32
    driver.wait(10.0)
    for _ in range(40):
        driver.report("learner", driver.held("learner")[0], seconds=0.001)
    assert len(driver.held("learner")) > 1 + 100


def test_a_worker_is_asked_for_that_once() -> None:
    driver = flooded()
    bound = ev.SetUser(
        at=driver.now, cause="root", request="s", name="bob", change=ShareChange(max_running=0)
    )
    driver.tell(bound)
    driver.submit(owner="bob")
    assert len(driver.of(fx.Recall)) == 1
    driver.give_back()
    driver.wait(10.0)
    for _ in range(100):
        driver.report("learner", driver.held("learner")[0], seconds=0.001)
        assert driver.of(fx.Recall) == []
    assert len(driver.held("learner")) > 1 + 100, "he may have nothing"


def test_the_first_job_of_a_higher_priority_finds_short_queues_too() -> None:
    driver = flooded()
    driver.submit(owner="ada", priority=200, argv=("sleep", "60"))
    assert len(driver.of(fx.Recall)) == 1


@pytest.mark.parametrize(
    "his",
    [
        {"owner": "bob", "priority": 50},
        {"owner": "bob", "cpus": 64},
    ],
    ids=["behind all others", "that nobody can run"],
)
def test_nothing_is_given_back_for_a_job(his: dict[str, Any]) -> None:
    driver = flooded()
    driver.submit(**his)
    assert driver.of(fx.Recall) == []
    for _ in range(120):
        driver.report("learner", driver.held("learner")[0], seconds=0.001)
    assert len(driver.held("learner")) > 1 + 100


def test_nothing_is_given_back_for_one_who_has_something_running() -> None:
    driver = PoolDriver()
    driver.join("his")
    driver.submit(owner="bob", argv=("sleep", "60"))
    flood(driver)
    driver.submit(owner="bob", argv=("sleep", "60"))
    assert driver.of(fx.Recall) == []


def test_that_a_task_made_room_is_no_part_of_its_story() -> None:
    driver = flooded()
    driver.submit(owner="bob")
    driver.give_back()
    assert [record for record in driver.records if isinstance(record, Happening)] == []
    assert driver.pool.state.totals.tasks_recalled == 200 - 16


def test_of_the_next_job_with_the_same_command_as_much_is_expected_as_the_one_before_took() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.report("w", seconds=0.0001)
    again = driver.submit(1000)
    assert len(driver.held("w")) == 1 + driver.pool.state.config.ahead_per_slot
    assert driver.pool.state.jobs[again].mean_seconds is None


@pytest.mark.parametrize(
    "other",
    [
        {"argv": ("true", "{}")},
        {"owner": "bob"},
    ],
    ids=["another command", "another user"],
)
def test_of_others_nothing_is_expected(other: dict[str, Any]) -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.report("w", seconds=0.001)
    driver.submit(1000, **other)
    assert len(driver.held("w")) == 1


def test_of_few_commands_it_is_remembered_how_long_they_take() -> None:
    driver = PoolDriver()
    driver.join("w")
    for number in range(COMMANDS + 5):
        driver.submit(argv=("true", str(number)))
        driver.report("w", seconds=0.001)
    assert len(driver.pool.state.sharers.of("ada").expected) == COMMANDS


def test_what_the_first_task_took_counts_more_than_what_was_expected() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.report("w", seconds=0.001)
    again = driver.submit(1000)
    driver.report("w", seconds=60.0)
    assert driver.pool.state.jobs[again].mean_seconds == 60.0


def test_a_worker_is_believed_that_tasks_are_short_if_that_was_expected() -> None:
    driver = PoolDriver()
    driver.join("learner")
    driver.submit()
    driver.report("learner", seconds=0.001)
    driver.join("w")
    driver.submit(1000)
    driver.report("w", *driver.held("w"), seconds=0.001)
    assert len(driver.held("w")) > 10


def test_an_earlier_job_of_unknown_run_time_is_not_passed_for_ever() -> None:
    driver = PoolDriver()
    driver.join("w")
    short = driver.submit(10_000)
    for _ in range(3):
        driver.report("w", seconds=0.001)
    state = driver.pool.state
    earlier = driver.submit(1, cpus=0.5, argv=("sleep", "60"))
    state.jobs[short].line = driver.submit(1, cpus=64) + 1
    state.touch_job(state.jobs[short])
    for _ in range(1 + 200):  # what waits there before it: a fifth of a second's worth
        driver.report("w", seconds=0.001)
    assert earlier not in state.jobs


def test_short_tasks_are_sent_ahead_though_a_larger_one_waits_that_has_no_room_there() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(10_000)
    for _ in range(3):
        driver.report("w", seconds=0.001)
    driver.submit(1, cpus=2, priority=200, argv=("sleep", "60"))
    for _ in range(len(driver.held("w")) + 150):  # what was sent before it came, and more
        driver.report("w", seconds=0.001)
    assert len(driver.held("w")) > 10


def test_no_more_are_sent_ahead_than_short_tasks_run_there() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(1, priority=200, argv=("sleep", "60"))
    driver.submit(10_000)
    [_, short] = driver.held("w")
    driver.report("w", short, seconds=0.0001)
    assert len(driver.held("w")) == 1 + 1 + driver.pool.state.config.ahead_per_slot


def test_nothing_more_is_sent_to_a_worker_that_is_stuck() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(5)
    while driver.pool.state.demand:
        driver.report("w", seconds=0.001)
    before = driver.held("w")
    driver.now += 10 * driver.pool.state.config.stuck_seconds
    driver.submit(5)
    waiting = driver.pool.state.jobs[2]
    waiting.mean_seconds = 0.001
    driver.pool.state.touch_job(waiting)
    driver.pool.state.touch(driver.worker("w"))
    driver.wait(0.1)
    assert driver.held("w") == before


def test_a_hand_out_says_which_of_its_jobs_have_items_and_leaves_these_to_the_shell() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.submit(2, items=("zero", "one"))
    driver.submit(2)
    driver.join("w", cpus=4)
    driver.let_go()
    [run] = driver.of(fx.Run)
    assert [span[1] for span in run.spans] == [1, 2]
    assert (run.items, run.items_of) == ([], {1})
    assert {template.job_id: template.with_items for template in run.templates} == {
        1: True,
        2: False,
    }


def test_the_last_tasks_are_spread_evenly() -> None:
    driver = PoolDriver()
    names = [f"w{n}" for n in range(10)]
    driver.join(*names)
    driver.submit(110)
    for name in names:
        driver.report(name, seconds=0.001)
    shares = [len(driver.held(name)) for name in names]
    assert max(shares) <= 1.5 * (sum(shares) / len(shares))


def test_what_waits_at_a_stuck_worker_is_taken_back_when_another_idles() -> None:
    driver = PoolDriver()
    driver.join("stuck")
    job = driver.submit(30)
    while driver.pool.state.demand:
        driver.report("stuck", seconds=0.01)
    before = driver.held("stuck")
    driver.join("idle")
    driver.wait(1.0)
    (wish,) = driver.of(fx.Recall)
    assert wish.worker == "stuck"
    assert before[0][0] not in wish.numbers, "the one that runs stays"
    driver.tell(ev.Returned(at=driver.now, worker="stuck", numbers=wish.numbers))
    assert driver.jobs_at("idle") == [job] * len(driver.held("idle")) != []
    driver.finish_all(0.01)
    assert driver.ended == [job]
    assert driver.pool.state.totals.attempts_lost == 0, "what was given back is no loss"


def test_a_worker_that_reports_is_left_alone() -> None:
    driver = PoolDriver()
    driver.join("quick")
    driver.submit(200)
    driver.report("quick", seconds=0.01)
    driver.join("idle", tags=["x"])
    for _ in range(10):
        driver.now += 0.1
        driver.report("quick", seconds=0.01)
        assert not driver.of(fx.Recall)


def test_ten_million_tasks_cost_what_one_does() -> None:
    driver = PoolDriver()
    driver.join("w")
    job_id = driver.submit(10_000_000)
    job = driver.pool.state.jobs[job_id]
    assert len(job.live) == 1
    assert job.waiting == 9_999_999
    driver.cancel(job_id)
    driver.report("w", outcome=2)
    assert driver.ended == [job_id]
    assert len(driver.records) < 10


def test_a_job_runs_only_once_it_is_durable() -> None:
    driver = PoolDriver()
    driver.join("w")
    spec = JobSpec(program=Program(argv=("true",)))
    effects = driver.pool.handle(ev.Submit(at=driver.now, request="r", owner="ada", spec=spec))
    effects += driver.pool.schedule(driver.now)
    assert not [effect for effect in effects if isinstance(effect, fx.Run)]
    assert [type(e) for e in effects if e.after_commit] == [fx.Feed, fx.Answer]
    feed = next(effect for effect in effects if isinstance(effect, fx.Feed))
    driver.pool.handle(feed.event)
    assert [type(e) for e in driver.pool.schedule(driver.now)] == [fx.Run, fx.Persist]


def test_priority_counts_between_jobs_that_ask_for_different_things() -> None:
    driver = PoolDriver()
    ordinary = driver.submit(2, cpus=1)
    urgent = driver.submit(2, cpus=2, priority=200)
    later = driver.submit(2, memory_bytes=GIB)
    driver.join("w", cpus=2, memory_bytes=GIB)
    order: dict[int, None] = {}
    while driver.pool.state.jobs:
        order.update(dict.fromkeys(driver.jobs_at("w")))
        driver.report("w")
    assert list(order) == [urgent, ordinary, later]


def test_of_what_waits_at_a_stuck_worker_the_later_half_is_taken_back() -> None:
    """The earlier half would run there soonest."""
    driver = PoolDriver()
    driver.join("stuck")
    driver.submit(30)
    while driver.pool.state.demand:
        driver.report("stuck", seconds=0.01)
    _, *waiting = [number for number, *_ in driver.held("stuck")]
    driver.join("idle")
    driver.wait(1.0)
    (wish,) = driver.of(fx.Recall)
    assert wish.numbers == waiting[len(waiting) // 2 :]


def test_a_part_of_the_last_tasks_is_kept_for_whoever_is_free_first() -> None:
    driver = PoolDriver()
    driver.join("teacher")
    job = driver.submit(61)
    driver.report("teacher", seconds=0.001)
    driver.pool.handle(ev.Lost(at=driver.now, worker="teacher", cause="unavailable"))
    driver.join("a", "b")
    assert len(driver.held("a")) + len(driver.held("b")) > 20
    assert driver.pool.state.jobs[job].waiting > 20


# -- why something waits ---------------------------------------------------------------------------


def test_a_full_worker_is_said_to_lack_what_it_lacks_most() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, memory_bytes=4 * GIB)
    waiting = driver.submit(2, memory_bytes=3 * GIB)
    [group] = driver.pool.explain(driver.pool.state.jobs[waiting], driver.now).groups
    assert group.refusal.reason is Reason.BUSY
    assert group.refusal.wanted == "3072 MiB memory"


def test_a_worker_at_which_others_wait_could_take_nothing_at_once() -> None:
    """One of its three processors is free, but what waits there needs two, and comes first."""
    driver = PoolDriver()
    driver.join("w", cpus=3)
    driver.submit(40, cpus=2)
    driver.report("w", seconds=0.01)
    job = driver.submit(1, cpus=1)
    assert job not in driver.jobs_at("w")
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now)
    assert found.could == 0
    [group] = found.groups
    assert (group.refusal.reason, group.refusal.found) == (Reason.BUSY, "others wait there")


def test_a_worker_without_tags_and_too_small_lacks_the_tags_first() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(cpus=64, requires=("r",))
    [group] = driver.pool.explain(driver.pool.state.jobs[job], driver.now).groups
    assert group.refusal.reason is Reason.MISSING_TAGS


def test_a_job_that_is_at_work_is_not_ahead_of_itself() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(5)
    assert driver.tasks_ahead(job) == 0


def test_what_holds_the_job_itself_back_is_counted() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=4)
    job = driver.submit(4, max_failures=2)
    driver.fail("w", *driver.held("w")[:3])
    (reason,) = driver.pool.explain(driver.pool.state.jobs[job], driver.now).job_reasons
    assert (reason.reason, reason.found) == (Reason.BACKOFF, "3 tasks, the next in 1.0 s")


def test_a_worker_that_is_drained_is_that_before_it_is_in_quarantine() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit()
    driver.report("w", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
    [group] = driver.pool.explain(driver.pool.state.jobs[job], driver.now).groups
    assert group.refusal.reason is Reason.QUARANTINED
    driver.tell(ev.Drain(at=driver.now, worker="w", by="root"))
    [group] = driver.pool.explain(driver.pool.state.jobs[job], driver.now).groups
    assert group.refusal.reason is Reason.DRAINING


# -- jobs that keep failing ------------------------------------------------------------------------


def test_a_job_that_keeps_failing_lets_others_of_its_priority_by() -> None:
    driver = PoolDriver()
    driver.join("w", "x")
    failing = driver.submit(100)
    other = driver.submit(10)
    for _ in range(LETS_OTHERS_BY):
        driver.fail(next(name for name in "wx" if failing in driver.jobs_at(name)))
    assert other in driver.jobs_at("w") + driver.jobs_at("x")


def test_and_its_turn_comes_again_before_what_was_submitted_later() -> None:
    driver = PoolDriver()
    driver.join("w")
    failing = driver.submit(100)
    earlier = driver.submit(2)
    for _ in range(LETS_OTHERS_BY):
        driver.fail("w")
    later = driver.submit(2)
    ran = []
    for _ in range(20):
        ran.append(driver.jobs_at("w")[0])
        driver.report("w")
    assert ran.index(earlier) < ran.index(failing)
    assert later not in ran, "the rest of the job comes first: it does not fail any more"


def test_priority_counts_more_than_failures() -> None:
    driver = PoolDriver()
    driver.join("w")
    failing = driver.submit(100, priority=200)
    driver.submit(10)
    for _ in range(3 * LETS_OTHERS_BY):
        driver.fail("w")
    assert driver.jobs_at("w") == [failing]


def test_failures_that_are_not_in_a_row_change_nothing() -> None:
    driver = PoolDriver()
    driver.join("w")
    failing = driver.submit(100, max_failures=1)
    driver.submit(10)
    for _ in range(5):
        for _ in range(LETS_OTHERS_BY - 1):
            driver.fail("w")
            assert driver.jobs_at("w") == [failing]
        driver.report("w")
