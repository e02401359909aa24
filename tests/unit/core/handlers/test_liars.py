"""A worker that means harm: what it was handed once gives it no power over what others run."""

from __future__ import annotations

import itertools

import pytest
from poolkit import Attempt, PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.handlers.presence import MOST_STRANGERS
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.result import (
    CLOCK_SLACK_SECONDS,
    MOST_BYTES,
    MOST_CPUS,
    MOST_REASON_CHARACTERS,
    TAIL_BYTES,
    Outcome,
    Result,
)
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd

LIAR = "liar@workers/1"
HONEST = "honest@workers/1"


def pool_with_liar(count: int = 1, **spec: object) -> tuple[PoolDriver, Attempt]:
    """A liar was handed the first task of a job."""
    pool = PoolDriver()
    pool.join(LIAR)
    pool.submit(count=count, **spec)
    return pool, pool.held(LIAR)[0]


def give_back(pool: PoolDriver, attempt: Attempt) -> None:
    """The liar says that it never started this attempt, and is sent nothing more."""
    pool.tell(ev.Leaving(at=pool.now, worker=LIAR))
    pool.tell(ev.Returned(at=pool.now, worker=LIAR, numbers=[attempt[0]]))


def test_what_was_given_back_cannot_be_reported_after_all() -> None:
    pool, attempt = pool_with_liar()
    give_back(pool, attempt)
    pool.join(HONEST)
    [theirs] = pool.held(HONEST)
    pool.report(LIAR, attempt)
    assert pool.held(HONEST) == [theirs]
    assert not pool.of(fx.Kill)
    assert pool.pool.totals.reports_refused == 1
    pool.report(HONEST, theirs)
    assert pool.ended == [1]


def test_what_was_given_back_cannot_be_had_again_with_a_hello() -> None:
    pool, attempt = pool_with_liar()
    give_back(pool, attempt)
    pool.join(HONEST)
    theirs = pool.held(HONEST)
    pool.join(LIAR, holds=[attempt])
    assert pool.of(fx.Welcome)[0].kill == [attempt[0]]
    assert pool.held(HONEST) == theirs


def test_a_failure_cannot_become_a_success() -> None:
    pool, attempt = pool_with_liar(max_failures=3)
    pool.fail(LIAR, attempt)
    pool.report(LIAR, attempt)
    assert pool.ended == []
    assert pool.pool.totals.reports_refused == 1


def test_an_attempt_that_was_lost_and_then_failed_cannot_succeed() -> None:
    pool, attempt = pool_with_liar()
    pool.lose(LIAR)
    pool.fail(LIAR, attempt)
    pool.report(LIAR, attempt)
    assert pool.ended == []


@pytest.mark.parametrize(
    ("restarts", "outcome"),
    list(
        itertools.product(
            [[], ["before the retry"], ["after it"], ["before the retry", "after it"]],
            [Outcome.DONE, Outcome.FAILED],
        )
    ),
)
def test_an_attempt_from_before_a_retry_does_not_end_the_task_again(
    restarts: list[str], outcome: int
) -> None:
    pool, attempt = pool_with_liar()
    pool.fail(LIAR, attempt)
    pool.tell(ev.Leaving(at=pool.now, worker=LIAR))
    if "before the retry" in restarts:
        pool.restart()
    pool.retry(1)
    if "after it" in restarts:
        pool.restart()
    pool.join(HONEST)
    pool.live(pool.pool.state.config.reconcile_seconds)
    [theirs] = pool.held(HONEST)
    pool.report(LIAR, attempt, outcome=outcome)
    assert pool.held(HONEST) == [theirs]
    pool.report(HONEST, theirs)
    assert pool.ended == [1, 1]


def test_a_result_for_another_task_than_the_attempt_s_is_not_counted() -> None:
    pool, (number, job_id, _) = pool_with_liar(count=2)
    pool.report(LIAR, (number, job_id, 1))
    assert pool.pool.state.jobs[1].counts.done == 0
    assert pool.held(LIAR) == [(number, job_id, 0)]


def test_a_success_of_a_worker_that_was_given_up_still_counts() -> None:
    pool, attempt = pool_with_liar()
    pool.lose(LIAR)
    pool.join(HONEST)
    [theirs] = pool.held(HONEST)
    pool.report(LIAR, attempt)
    assert pool.of(fx.Kill)[0].numbers == [theirs[0]]
    assert pool.ended == [1]


def swallow(pool: PoolDriver) -> None:
    """Another session of the liar's account reports at once all that the liar has."""
    held = pool.held(LIAR)
    results = [Result(*attempt, Outcome.DONE, pool.now, 0.001) for attempt in held]
    seals = pool.seals(LIAR, held)
    pool.tell(ev.Reported(at=pool.now, worker="liar@workers/2", results=results, seals=seals))


def test_a_sibling_session_s_reports_do_not_hide_a_liar() -> None:
    pool = PoolDriver()
    names = [f"{n}@workers/1" for n in range(8)]
    pool.join(LIAR, *names, cpus=2)
    pool.submit(count=4000)
    for _ in range(600):
        pool.now += 0.05
        if pool.worker(LIAR).held:
            swallow(pool)
        for name in names:
            for number, job_id, index in pool.held(name):
                task = pool.worker(name).held[number]
                assert task.attempt is not None
                if pool.now - task.attempt.sent_at >= 3.0:
                    pool.report(name, (number, job_id, index), seconds=3.0)
            pool.tell(ev.Heard(at=pool.now, worker=name))
        if pool.worker(LIAR).quarantined_until > pool.now:
            return
    raise AssertionError("nobody noticed")


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED, Outcome.UNABLE])
def test_what_is_kept_of_a_result_is_bounded(outcome: int) -> None:
    pool, attempt = pool_with_liar(max_failures=3)
    text = "x" * 400_000
    pool.report(LIAR, attempt, outcome=outcome, reason=text, stdout=text, stderr=text)
    kept = 2 * TAIL_BYTES + 2 * MOST_REASON_CHARACTERS
    assert sum(len(repr(record)) for record in pool.records[-3:]) < kept + 2000


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_what_an_attempt_is_said_to_have_used_is_not_more_than_can_be(
    outcome: int, sign: float
) -> None:
    """One result would spoil the sums of its user for good."""
    pool, attempt = pool_with_liar(max_failures=3)
    absurd = sign * 1e12
    report = {"waited_seconds": absurd, "cpu_seconds": absurd, "peak_bytes": (1 << 63) - 1}
    pool.report(LIAR, attempt, outcome=outcome, seconds=absurd, **report)
    [kept] = [r.result for r in pool.records if isinstance(r, TaskRecord) and r.result is not None]
    assert 0.0 <= kept.wall_seconds <= CLOCK_SLACK_SECONDS + 60.0
    assert 0.0 <= kept.waited_seconds <= CLOCK_SLACK_SECONDS + 60.0
    assert 0.0 <= kept.cpu_seconds <= MOST_CPUS * kept.wall_seconds + 1.0
    assert kept.peak_bytes == MOST_BYTES


@pytest.mark.parametrize("outcome", [-1, 5, 40_000, (1 << 63) - 1, -(1 << 63)])
def test_an_outcome_that_there_is_not_is_kept_as_a_failure(outcome: int) -> None:
    """A store that has no room for the number would end the pool with the commit."""
    pool, attempt = pool_with_liar()
    pool.report(LIAR, attempt, outcome=outcome)
    [kept] = [r.result for r in pool.records if isinstance(r, TaskRecord) and r.result is not None]
    assert kept.outcome == Outcome.FAILED
    assert pool.ended == [1]


@pytest.mark.parametrize("off", [-1e12, 1e12])
def test_a_start_far_from_the_present_is_not_kept(off: float) -> None:
    pool, (number, job_id, index) = pool_with_liar()
    lie = Result(number, job_id, index, Outcome.DONE, off, 1.0)
    seals = pool.seals(LIAR, [(number, job_id, index)])
    pool.tell(ev.Reported(at=pool.now, worker=LIAR, results=[lie], seals=seals))
    [kept] = [r.result for r in pool.records if isinstance(r, TaskRecord) and r.result is not None]
    assert abs(kept.started_at - pool.now) <= CLOCK_SLACK_SECONDS + 60.0


def test_what_a_liar_says_that_it_charges_is_no_more_than_it_could() -> None:
    """Its user would have more than he may, and nothing of his would be handed out any more."""
    pool = PoolDriver()
    change = ShareChange(limits={"cpus": 4.0})
    pool.tell(ev.SetUser(at=pool.now, request="limit", name="ada", change=change))
    pool.join(LIAR)
    pool.submit(count=8)
    [attempt] = pool.held(LIAR)
    pool.restart()
    pool.tell(
        ev.Joined(
            at=pool.now,
            worker=LIAR,
            incarnation="one",
            ad=WorkerAd(assets={"cpus": 1.0}),
            holds=[(*attempt, 0)],
            claims=[{"cpus": (1 << 63) - 1}],
            seals=pool.seals(LIAR, [attempt]),
        )
    )
    pool.live(pool.pool.state.config.reconcile_seconds)
    pool.join(HONEST, cpus=8)
    assert pool.held(LIAR) == [attempt]
    assert len(pool.held(HONEST)) == 3, "he may have four"


def test_addresses_that_never_say_hello_take_no_memory_without_a_bound() -> None:
    pool = PoolDriver()
    pool.hold_back()
    for n in range(MOST_STRANGERS + 100):
        pool.pool.handle(ev.Heard(at=pool.now, worker=f"liar@workers/{n}"))
    assert len(pool.pool.state.asked) == MOST_STRANGERS
    pool.let_go()
    pool.join(LIAR)
    pool.submit()
    assert len(pool.held(LIAR)) == 1


def test_a_liar_that_comes_again_and_again_as_another_session_is_found_out() -> None:
    """It leaves before it is looked at, and leaves its quarantine behind."""
    pool = PoolDriver()
    names = [f"{n}@workers/1" for n in range(8)]
    pool.join(*names, cpus=2)
    pool.submit(count=20_000)
    session = swallowed = 0
    liar = "liar@workers/0"
    pool.join(liar, cpus=2)
    for turn in range(400):
        pool.now += 0.05
        held = pool.held(liar)
        swallowed += len(held)
        if held:
            pool.report(liar, *held, seconds=0.001)
        if turn % 20 == 0:
            session += 1
            pool.tell(ev.Leaving(at=pool.now, worker=liar))
            pool.tell(ev.Lost(at=pool.now, worker=liar, cause="unavailable"))
            liar = f"liar@workers/{session}"
            pool.join(liar, cpus=2)
        for name in names:
            for number, job_id, index in pool.held(name):
                task = pool.worker(name).held[number]
                assert task.attempt is not None
                if pool.now - task.attempt.sent_at >= 3.0:
                    pool.report(name, (number, job_id, index), seconds=3.0)
            pool.tell(ev.Heard(at=pool.now, worker=name))
    assert pool.worker(liar).quarantined_until > pool.now
    assert swallowed < 300


def test_a_failure_that_was_reported_before_a_restart_cannot_become_a_success() -> None:
    pool = PoolDriver()
    pool.join(LIAR)
    pool.submit(max_failures=3)
    [attempt] = pool.held(LIAR)
    pool.fail(LIAR, attempt)
    pool.restart()
    pool.report(LIAR, attempt)
    assert pool.ended == []


def test_a_success_from_before_a_restart_counts_though_a_later_attempt_has_failed() -> None:
    pool = PoolDriver()
    pool.join(LIAR)
    job = pool.submit(max_failures=3)
    [attempt] = pool.held(LIAR)
    pool.lose(LIAR)
    pool.join(HONEST)
    pool.fail(HONEST)
    pool.restart()
    pool.report(LIAR, attempt)
    assert pool.ended == [job]


def test_a_wait_that_cannot_be_is_none() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(2)
    driver.live(5.0)
    driver.report("w", seconds=1.0, waited_seconds=-1.8e9)
    [job] = driver.pool.jobs
    assert list(job.latencies) == [pytest.approx(4.0, abs=0.1)]
