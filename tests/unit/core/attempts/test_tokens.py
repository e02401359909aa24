"""Assets of the whole pool: who holds them, who waits for them, and that they add up."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.attempts.token_return import take_lacking, wake_some
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.records import TokenRecord
from kestrelctl.core.model.refusal import NEVER_FITS, Reason, Refusal
from kestrelctl.core.model.setting import SettingGone
from kestrelctl.core.model.worker.assets import MILLI

MANY = {f"w{n}": 0 for n in range(1, 9)}


def pool_with(total: int, *, workers: int = 8, config: Config | None = None) -> PoolDriver:
    driver = PoolDriver(config)
    driver.join(*list(MANY)[:workers])
    assert driver.own("matlab", total).error is None
    return driver


def running(driver: PoolDriver) -> int:
    return sum(len(worker.held) for worker in driver.pool.workers.values())


def at_work(driver: PoolDriver) -> list[str]:
    return [name for name, worker in driver.pool.workers.items() if worker.held]


def held(driver: PoolDriver) -> int:
    return driver.pool.state.tokens.held.get("matlab", 0) // 1000


def job_reasons(driver: PoolDriver, job_id: int) -> list[Refusal]:
    return driver.pool.explain(driver.pool.state.jobs[job_id], driver.now).job_reasons


def waiting(driver: PoolDriver) -> dict[str, int]:
    return {word: n for word, n in driver.pool.census(driver.now).waiting.items() if n}


# -- handing out and coming back -------------------------------------------------------------------


def test_no_more_tasks_run_than_there_are_tokens() -> None:
    driver = pool_with(3)
    driver.submit(10, matlab=1)
    assert (running(driver), held(driver)) == (3, 3)


def test_a_large_worker_gets_no_more_tasks_than_there_are_tokens() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=16)
    driver.own("matlab", 3)
    driver.submit(100, matlab=1)
    assert (running(driver), held(driver)) == (3, 3)


def test_a_token_that_comes_back_goes_to_the_next_task() -> None:
    driver = pool_with(3)
    driver.submit(10, matlab=1)
    driver.report(at_work(driver)[0])
    assert (running(driver), held(driver)) == (3, 3)
    driver.finish_all()
    assert held(driver) == 0
    assert driver.ended == [1]


def test_jobs_that_ask_for_different_amounts_share_the_tokens() -> None:
    driver = pool_with(5)
    driver.hold_back()
    driver.submit(2, matlab=2)
    driver.submit(4, matlab=1, memory_bytes=0)
    driver.let_go()
    assert (running(driver), held(driver)) == (3, 5)


def test_who_needs_no_token_goes_by_those_who_wait_for_one() -> None:
    driver = pool_with(1, workers=4)
    driver.submit(10, matlab=1, priority=200)
    driver.submit(3)
    at_workers = [job_id for name in at_work(driver) for job_id in driver.jobs_at(name)]
    assert sorted(at_workers) == [1, 2, 2, 2]


def test_a_worker_that_had_nothing_to_do_is_woken_when_a_token_is_back() -> None:
    driver = pool_with(1, workers=2)
    driver.submit(2, matlab=1)
    [busy] = at_work(driver)
    driver.submit(1, cpus=8)  # it fits nowhere, so the idle one is looked at and set aside
    driver.submit(1, priority=0)
    driver.tell(ev.Drain(at=driver.now, worker=busy, by="root"))
    other = next(name for name in ("w1", "w2") if name != busy)
    driver.report(other)
    driver.report(busy)
    assert driver.jobs_at(other) == [1]


def test_for_one_token_one_worker_is_woken() -> None:
    driver = pool_with(1)
    driver.submit(9, matlab=1)
    driver.submit(1, cpus=8)  # it fits nowhere, so those that idle are set aside
    supply = driver.pool.state.supply.of(driver.worker("w1"))
    assert len(supply.parked) == 8
    driver.tell(ev.Drain(at=driver.now, worker=at_work(driver)[0], by="root"))
    driver.hold_back()
    driver.report(at_work(driver)[0])
    wake_some(driver.pool.state, take_lacking(driver.pool.state))
    assert (len(supply.hungry), len(supply.parked)) == (1, 6)
    driver.let_go()
    assert held(driver) == 1


def test_tokens_that_come_back_one_by_one_before_a_plan_wake_a_worker_each() -> None:
    driver = pool_with(2)
    driver.submit(9, matlab=1)
    driver.submit(1, cpus=8)
    busy = at_work(driver)
    for name in busy:
        driver.tell(ev.Drain(at=driver.now, worker=name, by="root"))
    driver.hold_back()
    for name in busy:
        driver.report(name)
    driver.let_go()
    assert held(driver) == 2


def test_who_was_woken_for_tokens_and_got_something_else_does_not_keep_them_from_others() -> None:
    driver = PoolDriver()
    driver.own("matlab", 1)
    driver.own("seats", 1)
    driver.join("plain", tags=("a", "b"))
    driver.join("flexible", tags=("b", "c", "d"))
    second = driver.submit(1, seats=2, requires=("b",))
    first = driver.submit(1, matlab=2, requires=("a",), priority=200)
    for tag in ("c", "d"):
        driver.submit(1, matlab=9, requires=(tag,))
    driver.submit(1, cpus=8)  # it fits nowhere, so those that idle are set aside
    driver.hold_back()
    driver.own("matlab", 2)
    driver.own("seats", 2)
    driver.let_go()
    assert (driver.jobs_at("plain"), driver.jobs_at("flexible")) == ([first], [second])


def test_a_part_of_a_token_is_a_whole_one() -> None:
    driver = pool_with(3)
    driver.submit(10, matlab=0.5)
    assert (running(driver), held(driver)) == (3, 3)


def test_a_worker_is_not_charged_for_tokens_nor_told_of_them() -> None:
    driver = pool_with(3, workers=1)
    driver.submit(1, matlab=1)
    [run] = driver.of(fx.Run)
    assert run.claims == [{"cpus": 1000}]
    assert driver.worker("w1").free == {"cpus": 0}


def test_tasks_that_hold_tokens_do_not_wait_behind_others_at_a_worker() -> None:
    driver = pool_with(100, workers=1)
    driver.submit(50, matlab=1)
    for _ in range(5):
        driver.now += 0.01
        driver.report("w1", seconds=0.01)
    assert len(driver.held("w1")) == 1
    driver.disown("matlab")
    driver.tell(ev.Resized(at=driver.now, worker="w1", ad=driver.worker("w1").ad))
    driver.submit(50, priority=255)
    for _ in range(5):
        driver.now += 0.01
        driver.report("w1", seconds=0.01)
    assert len(driver.held("w1")) > 1


def test_an_attempt_that_waits_at_a_worker_holds_its_tokens() -> None:
    driver = pool_with(2, workers=1)
    driver.submit(1, matlab=1)
    driver.report("w1", *driver.held("w1"))
    driver.submit(1, matlab=1, cpus=1)
    task = next(iter(driver.worker("w1").held.values()))
    assert task.attempt is not None
    assert task.attempt.tokens == {"matlab": 1000}


# -- every end gives them back ---------------------------------------------------------------------


def test_a_failed_attempt_gives_its_token_back_and_the_retry_takes_one() -> None:
    driver = pool_with(1)
    driver.submit(1, matlab=1, max_failures=2)
    driver.fail(at_work(driver)[0])
    assert held(driver) == 0
    driver.live(30)
    assert held(driver) == 1


def test_a_lost_attempt_gives_its_token_back() -> None:
    driver = pool_with(1, workers=2)
    driver.submit(1, matlab=1)
    first = at_work(driver)[0]
    driver.lose(first)
    driver.live(3)
    assert (at_work(driver), held(driver)) == ([n for n in ("w1", "w2") if n != first], 1)


def test_an_attempt_that_waits_for_its_worker_keeps_its_token() -> None:
    driver = pool_with(1)
    driver.submit(2, matlab=1, on_worker_lost=OnWorkerLost.WAIT)
    driver.lose(at_work(driver)[0])
    assert held(driver) == 1
    assert waiting(driver) == {"tokens": 1}


def test_a_cancelled_attempt_gives_its_token_back_when_it_is_over() -> None:
    driver = pool_with(1)
    job = driver.submit(1, matlab=1)
    driver.submit(1, matlab=1)
    driver.cancel(job)
    [busy] = at_work(driver)
    assert driver.jobs_at(busy) == [job]
    driver.fail(busy)
    assert (held(driver), driver.jobs_at(at_work(driver)[0])) == (1, [2])


def test_an_attempt_that_was_given_back_gives_its_token_back() -> None:
    driver = pool_with(1, workers=1)
    driver.submit(1, matlab=1)
    driver.tell(ev.Drain(at=driver.now, worker="w1", by="root"))
    [(number, _, _)] = driver.held("w1")
    driver.tell(ev.Returned(at=driver.now, worker="w1", numbers=[number]))
    assert held(driver) == 0


def test_a_worker_that_comes_back_with_a_lost_attempt_holds_its_token_again() -> None:
    driver = pool_with(1, workers=2)
    driver.submit(1, matlab=1)
    [first] = at_work(driver)
    lost = driver.held(first)
    driver.submit(1, matlab=1, priority=200)
    driver.lose(first)
    other = next(name for name in ("w1", "w2") if name != first)
    driver.join(first, holds=lost)
    assert driver.held(first) == lost
    assert held(driver) == 2, "one more than there are: the first was given up too soon"
    driver.report(other)
    assert held(driver) == 1


# -- more, fewer, none -----------------------------------------------------------------------------


def test_fewer_tokens_than_are_held_stop_nothing_and_start_nothing() -> None:
    driver = pool_with(5)
    driver.submit(20, matlab=1)
    driver.own("matlab", 2)
    assert not driver.of(fx.Kill)
    assert held(driver) == 5
    for left in (4, 3, 2, 2, 2):
        driver.report(at_work(driver)[0])
        assert held(driver) == left


def test_more_tokens_are_handed_out_at_once() -> None:
    driver = pool_with(2)
    driver.submit(20, matlab=1)
    driver.own("matlab", 4)
    assert held(driver) == 4


def test_without_tokens_jobs_wait_for_a_worker_that_offers_them() -> None:
    driver = pool_with(2, workers=4)
    job = driver.submit(20, matlab=1)
    assert driver.disown("matlab").error is None
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now)
    assert {group.refusal.reason for group in found.groups} == {Reason.MISSING_ASSET}
    assert waiting(driver) == {"missing-asset": 18}
    driver.report(at_work(driver)[0])
    assert running(driver) == 1
    driver.join("lab", matlab=1)
    assert driver.jobs_at("lab") == [job]


def test_tokens_that_come_after_the_job_are_found() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2")
    driver.submit(3, matlab=1)
    assert running(driver) == 0
    driver.own("matlab", 1)
    assert (running(driver), held(driver)) == (1, 1)


def test_what_was_held_when_tokens_were_removed_counts_when_they_are_back() -> None:
    driver = pool_with(2)
    driver.submit(20, matlab=1)
    driver.disown("matlab")
    driver.own("matlab", 3)
    assert held(driver) == 3


def test_so_does_what_was_held_by_an_attempt_that_a_restart_found_again() -> None:
    driver = pool_with(3, workers=3)
    driver.submit(20, matlab=1)
    driver.disown("matlab")
    kept = {name: driver.held(name) for name in at_work(driver)}
    driver.restart()
    for name, attempts in kept.items():
        driver.join(name, holds=attempts)
    assert running(driver) == 3
    driver.own("matlab", 4)
    driver.join("w8", "w9")
    assert (held(driver), running(driver)) == (4, 4)
    driver.report("w8")
    assert held(driver) == 4


def test_what_a_restart_found_at_the_workers_that_offer_it_holds_no_tokens() -> None:
    driver = PoolDriver()
    driver.join("w1", cpus=1, matlab=1)
    driver.submit(matlab=1)
    kept = driver.held("w1")
    driver.restart()
    driver.join("w1", cpus=1, matlab=1, holds=kept)
    assert held(driver) == 0


def test_an_expression_sees_the_tokens_that_a_task_asks_for() -> None:
    driver = pool_with(2)
    driver.submit(1, matlab=1, requirements="RequestMatlab == 1")
    assert running(driver) == 1


def test_a_larger_request_for_memory_asks_for_the_tokens_too() -> None:
    driver = PoolDriver()
    driver.join("w1", memory_bytes=1 << 30)
    driver.own("matlab", 1)
    driver.submit(1, matlab=1, memory_bytes=100 << 20, retry_memory_bytes=(200 << 20,))
    driver.fail("w1", reason=EndKind.MEMORY_LIMIT.text())
    assert driver.worker("w1").free["memory"] == (824 << 20) * 1000
    assert held(driver) == 1


# -- after a restart -------------------------------------------------------------------------------


def test_no_token_is_handed_out_after_a_restart_until_all_workers_have_spoken() -> None:
    driver = pool_with(2, workers=3)
    driver.submit(9, matlab=1)
    kept = {name: driver.held(name) for name in at_work(driver)}
    idle = next(name for name in ("w1", "w2", "w3") if name not in kept)
    driver.restart()
    driver.join(idle)
    first, second = kept
    driver.join(first, holds=kept[first])
    assert (held(driver), driver.held(idle)) == (1, [])
    driver.join(second, holds=kept[second])
    assert (held(driver), driver.held(idle)) == (2, [])
    driver.report(first)
    assert held(driver) == 2


def test_after_a_restart_tokens_of_workers_that_stay_silent_are_free_in_the_end() -> None:
    driver = pool_with(1, workers=2)
    driver.submit(3, matlab=1)
    [busy] = at_work(driver)
    idle = next(name for name in ("w1", "w2") if name != busy)
    driver.restart()
    driver.join(idle)
    assert job_reasons(driver, 1)[-1] == Refusal(Reason.RECOVERING, "1 matlab")
    assert waiting(driver) == {"recovering": 3}
    driver.live(driver.pool.config.reconcile_seconds + 1)
    assert (held(driver), len(driver.held(idle))) == (1, 1)


def test_tokens_are_kept_over_a_restart() -> None:
    driver = pool_with(7)
    driver.own("seats", 2)
    driver.disown("seats")
    driver.restart()
    assert driver.pool.settings(TokenRecord) == [TokenRecord("matlab", 7)]
    assert driver.pool.state.tokens.total("matlab") == 7 * MILLI
    assert SettingGone(TokenRecord, "seats") in driver.records


# -- what is said of it ----------------------------------------------------------------------------


def test_a_job_says_that_it_waits_for_tokens() -> None:
    driver = pool_with(5)
    job = driver.submit(9, matlab=1)
    assert job_reasons(driver, job) == [Refusal(Reason.TOKENS, "1 matlab", "0 of 5 free")]
    assert waiting(driver) == {"tokens": 4}
    assert [(t.name, t.total, t.held, t.waiting) for t in driver.pool.tokens()] == [
        ("matlab", 5, 5, 4)
    ]


def test_a_task_that_asks_for_more_than_there_are_waits_and_says_so() -> None:
    driver = pool_with(5)
    job = driver.submit(1, matlab=7)
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now)
    assert found.job_reasons == [Refusal(Reason.TOKENS, "7 matlab", "5 in all")]
    assert not found.ever
    driver.own("matlab", 7)
    assert running(driver) == 1


def test_tasks_that_run_wait_for_no_tokens() -> None:
    driver = pool_with(1)
    job = driver.submit(1, matlab=1)
    assert [each.reason for each in job_reasons(driver, job)] == [Reason.ALL_STARTED]


def test_another_worker_is_not_asked_for_because_tokens_are_missing() -> None:
    driver = pool_with(1, workers=1)
    driver.submit(9, matlab=1)
    assert not driver.pool.shortage().unmet
    driver.own("matlab", 3)
    assert sum(driver.pool.shortage().unmet.values()) == 2


def test_no_worker_is_kept_for_a_job_that_waits_for_tokens() -> None:
    config = Config(starving_seconds=3.0)
    driver = PoolDriver(config)
    driver.join("w1", cpus=4)
    driver.own("matlab", 1)
    driver.submit(1, matlab=1)
    driver.submit(1, matlab=1, cpus=4, priority=200)
    driver.submit(3)
    for _ in range(10):
        driver.wait(1.0)
        assert driver.worker("w1").kept_for is None


def test_a_worker_is_let_go_that_was_kept_for_a_job_that_lacks_tokens_now() -> None:
    driver = PoolDriver(Config(starving_seconds=3.0))
    driver.join("w1", cpus=4)
    driver.own("matlab", 2)
    driver.submit(1, cpus=1)
    job = driver.submit(1, matlab=2, cpus=4)
    driver.live(5)
    kept_for = driver.worker("w1").kept_for
    assert kept_for is not None
    assert kept_for.id == job
    driver.own("matlab", 1)
    driver.live(1)
    assert driver.worker("w1").kept_for is None


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("cpus", 4), ("memory", 4), ("disk", 4), ("gpus", 4),
        ("Mat lab", 4), ("", 4), ("m/1", 4), ("x" * 33, 4),
        ("matlab", 0), ("matlab", -1), ("matlab", 1 << 63), ("matlab", 10**9 + 1),
    ],
)  # fmt: skip
def test_what_cannot_be_tokens_is_refused(name: str, total: int) -> None:
    driver = PoolDriver()
    assert driver.own(name, total).error == "usage"
    assert not driver.pool.tokens()


def test_a_name_that_a_worker_offers_is_refused() -> None:
    driver = PoolDriver()
    driver.join("w1", "w2", matlab=1)
    answer = driver.own("matlab", 5)
    assert (answer.error, answer.message) == (
        "usage",
        "matlab is offered by 2 workers, such as w1",
    )


def test_tokens_that_are_not_there_cannot_be_removed() -> None:
    driver = PoolDriver()
    assert driver.disown("matlab").error == "not-found"


def test_a_pool_has_a_hundred_sorts_at_most() -> None:
    driver = PoolDriver()
    for n in range(100):
        assert driver.own(f"a{n}", 1).error is None
    assert driver.own("one_more", 1).error == "usage"
    assert driver.own("a7", 2).error is None


def test_a_worker_that_offers_what_the_pool_has_is_warned_of_once_and_its_own_is_not_used() -> None:
    driver = pool_with(1, workers=1)
    driver.submit(9, matlab=1)
    driver.join("lab", cpus=4, matlab=4)
    [note] = [n for n in driver.of(fx.Note) if n.level == "warning"]
    assert note.text == (
        "worker lab offers matlab, which the pool has itself: the worker's is not used"
    )
    assert driver.held("lab") == []
    driver.join("lab", cpus=4, matlab=4)
    assert not [n for n in driver.of(fx.Note) if n.level == "warning"]
    assert driver.own("matlab", 2).error is None


def test_tokens_are_no_reason_of_a_worker() -> None:
    assert Reason.TOKENS not in NEVER_FITS
