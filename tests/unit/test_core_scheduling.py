"""Which task goes where, and when."""

from __future__ import annotations

from poolkit import Desk

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.spec import JobSpec

GIB = 1 << 30


def test_higher_priority_goes_first_and_first_come_within_a_priority() -> None:
    desk = Desk()
    first, urgent, second = (desk.submit(priority=p) for p in (100, 200, 100))
    order = []
    desk.join("w")
    for _ in range(3):
        order += desk.jobs_at("w")
        desk.report("w")
    assert order == [urgent, first, second]


def test_ahead_of_a_job_are_those_at_work_that_come_before_it() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(7, cpus=64)  # it comes first, but takes nothing from anybody
    desk.submit(10)
    behind = desk.submit(5)
    waiting = 10 - len(desk.held("w"))
    assert desk.tasks_ahead(behind) == waiting > 0
    urgent = desk.submit(priority=200)
    assert desk.tasks_ahead(urgent) == 0


def test_no_more_than_max_running_run_at_once() -> None:
    desk = Desk()
    desk.join(*"abcd")
    job = desk.submit(10, max_running=2)
    most = 0
    while desk.pool.state.jobs:
        busy = [name for name in "abcd" if desk.held(name)]
        most = max(most, len(busy))
        desk.report(busy[0])
    assert most == 2
    assert desk.ended == [job]


def test_a_job_at_its_cap_lets_others_by() -> None:
    desk = Desk()
    capped = desk.submit(10, max_running=1, priority=200)
    other = desk.submit(10)
    desk.join("a", "b")
    assert sorted(desk.jobs_at("a") + desk.jobs_at("b")) == [capped, other]


def test_tasks_share_a_worker_as_far_as_cpus_and_memory_reach() -> None:
    desk = Desk()
    desk.join("w", cpus=8, memory_bytes=4 * GIB)
    desk.submit(10, cpus=2, memory_bytes=GIB)
    assert len(desk.held("w")) == 4, "memory and processors are both used up"
    assert desk.worker("w").free == {"cpus": 0, "memory": 0}


def test_fractions_of_a_processor_add_up() -> None:
    desk = Desk()
    desk.join("w", cpus=1)
    desk.submit(10, cpus=0.1)
    assert len(desk.held("w")) == 10


def test_a_small_task_passes_a_large_one_that_does_not_fit() -> None:
    desk = Desk()
    desk.join("w", cpus=2)
    large = desk.submit(cpus=4)
    small = desk.submit(cpus=2)
    assert desk.jobs_at("w") == [small]
    assert large in desk.pool.state.jobs


def test_tags_are_required_whatever_their_case() -> None:
    desk = Desk()
    desk.join("plain")
    desk.join("rich", tags=["r", "Matlab"])
    job = desk.submit(requires=("R", "MATLAB"))
    assert (desk.held("plain"), desk.jobs_at("rich")) == ([], [job])


def test_a_tag_is_not_matched_by_a_longer_one() -> None:
    desk = Desk()
    desk.join("w", tags=["PYTHON2.6"])
    desk.submit(requires=("PYTHON",))
    assert desk.held("w") == []


def test_work_is_spread_before_any_worker_is_filled() -> None:
    desk = Desk()
    desk.join(*"abcd", cpus=16)
    desk.submit(8)
    assert max(len(desk.held(name)) for name in "abcd") <= 4


def test_nothing_waits_behind_a_task_of_unknown_or_long_run_time() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(100)
    assert len(desk.held("w")) == 1
    desk.report("w", seconds=1.0)
    assert len(desk.held("w")) == 1


def test_a_worker_is_supplied_ahead_with_short_tasks() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(10_000)
    desk.report("w", seconds=0.01)
    assert len(desk.held("w")) == 11, "one that runs, and a tenth of a second's worth behind it"
    (run,) = desk.of(fx.Run)
    assert len(run.spans) == 1, "consecutive tasks travel as one span"
    assert run.spans[0][3] == 11


def test_the_supply_is_bounded_however_short_tasks_are() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(10_000)
    desk.report("w", seconds=0.0)
    assert len(desk.held("w")) == 1 + desk.pool.state.config.ahead_per_slot


def test_the_supply_is_topped_up_in_batches() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(10_000)
    desk.report("w", seconds=0.01)
    messages = 0
    for _ in range(50):
        desk.report("w", seconds=0.01)
        messages += len(desk.of(fx.Run))
    assert messages <= 12


def test_short_tasks_do_not_wait_behind_another_jobs_long_one() -> None:
    desk = Desk()
    desk.join("learner", "w")
    short = desk.submit(1000)
    desk.report("learner", seconds=0.001)
    desk.lose("learner")
    desk.report("w", *desk.held("w"), seconds=0.001)
    while desk.held("w"):
        desk.cancel(short)
        desk.report("w", *desk.held("w"), outcome=2)
    desk.submit()
    again = desk.submit(1000)
    assert again not in desk.jobs_at("w")


def test_the_last_tasks_are_spread_evenly() -> None:
    desk = Desk()
    names = [f"w{n}" for n in range(10)]
    desk.join(*names)
    desk.submit(110)
    for name in names:
        desk.report(name, seconds=0.001)
    shares = [len(desk.held(name)) for name in names]
    assert max(shares) <= 2 * (sum(shares) / len(shares))


def test_what_waits_at_a_stuck_worker_is_taken_back_when_another_idles() -> None:
    desk = Desk()
    desk.join("stuck")
    job = desk.submit(30)
    while desk.pool.state.demand:
        desk.report("stuck", seconds=0.01)
    before = desk.held("stuck")
    desk.join("idle")
    desk.wait(1.0)
    (wish,) = desk.of(fx.Recall)
    assert wish.worker == "stuck"
    assert before[0][0] not in wish.numbers, "the one that runs stays"
    desk.tell(ev.Returned(at=desk.now, worker="stuck", numbers=wish.numbers))
    assert desk.jobs_at("idle") == [job] * len(desk.held("idle")) != []
    desk.finish_all(0.01)
    assert desk.ended == [job]
    assert desk.pool.state.totals.attempts_lost == 0, "what was given back is no loss"


def test_a_worker_that_reports_is_left_alone() -> None:
    desk = Desk()
    desk.join("quick")
    desk.submit(200)
    desk.report("quick", seconds=0.01)
    desk.join("idle", tags=["x"])
    for _ in range(10):
        desk.now += 0.1
        desk.report("quick", seconds=0.01)
        assert not desk.of(fx.Recall)


def test_ten_million_tasks_cost_what_one_does() -> None:
    desk = Desk()
    desk.join("w")
    job_id = desk.submit(10_000_000)
    job = desk.pool.state.jobs[job_id]
    assert len(job.live) == 1
    assert job.waiting == 9_999_999
    desk.cancel(job_id)
    desk.report("w", outcome=2)
    assert desk.ended == [job_id]
    assert len(desk.records) < 10


def test_a_job_runs_only_once_it_is_durable() -> None:
    desk = Desk()
    desk.join("w")
    spec = JobSpec(argv=("true",))
    effects = desk.pool.handle(ev.Submit(at=desk.now, request="r", owner="ada", spec=spec))
    effects += desk.pool.schedule(desk.now)
    assert not [effect for effect in effects if isinstance(effect, fx.Run)]
    assert [type(e) for e in effects if e.after_commit] == [fx.Feed, fx.Answer]
    feed = next(effect for effect in effects if isinstance(effect, fx.Feed))
    desk.pool.handle(feed.event)
    assert [type(e) for e in desk.pool.schedule(desk.now)] == [fx.Run, fx.Persist]


def test_priority_counts_between_jobs_that_ask_for_different_things() -> None:
    desk = Desk()
    ordinary = desk.submit(2, cpus=1)
    urgent = desk.submit(2, cpus=2, priority=200)
    later = desk.submit(2, memory_bytes=GIB)
    desk.join("w", cpus=2, memory_bytes=GIB)
    order: dict[int, None] = {}
    while desk.pool.state.jobs:
        order.update(dict.fromkeys(desk.jobs_at("w")))
        desk.report("w")
    assert list(order) == [urgent, ordinary, later]


def test_of_what_waits_at_a_stuck_worker_the_later_half_is_taken_back() -> None:
    """The earlier half would run there soonest."""
    desk = Desk()
    desk.join("stuck")
    desk.submit(30)
    while desk.pool.state.demand:
        desk.report("stuck", seconds=0.01)
    _, *waiting = [number for number, *_ in desk.held("stuck")]
    desk.join("idle")
    desk.wait(1.0)
    (wish,) = desk.of(fx.Recall)
    assert wish.numbers == waiting[len(waiting) // 2 :]


# -- why something waits ---------------------------------------------------------------------------


def test_a_full_worker_is_said_to_lack_what_it_lacks_most() -> None:
    desk = Desk()
    desk.join("w", cpus=8, memory_bytes=4 * GIB)
    waiting = desk.submit(2, memory_bytes=3 * GIB)
    [group] = desk.pool.explain(desk.pool.state.jobs[waiting], desk.now).groups
    assert group.refusal.reason is Reason.BUSY
    assert group.refusal.wanted == "3072 MiB memory"


def test_a_worker_without_tags_and_too_small_lacks_the_tags_first() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(cpus=64, requires=("r",))
    [group] = desk.pool.explain(desk.pool.state.jobs[job], desk.now).groups
    assert group.refusal.reason is Reason.MISSING_TAGS


def test_a_job_that_is_at_work_is_not_ahead_of_itself() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(5)
    assert desk.tasks_ahead(job) == 0


def test_what_holds_the_job_itself_back_is_counted() -> None:
    desk = Desk()
    desk.join("w", cpus=4)
    job = desk.submit(4, max_failures=2)
    desk.fail("w", *desk.held("w")[:3])
    (reason,) = desk.pool.explain(desk.pool.state.jobs[job], desk.now).job_reasons
    assert (reason.reason, reason.found) == (Reason.BACKOFF, "3 tasks, the next in 1.0 s")


def test_a_worker_that_is_drained_is_that_before_it_is_in_quarantine() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit()
    desk.report("w", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
    [group] = desk.pool.explain(desk.pool.state.jobs[job], desk.now).groups
    assert group.refusal.reason is Reason.QUARANTINED
    desk.tell(ev.Drain(at=desk.now, worker="w", by="root"))
    [group] = desk.pool.explain(desk.pool.state.jobs[job], desk.now).groups
    assert group.refusal.reason is Reason.DRAINING
