"""Jobs are cancelled, retried, and end."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core.handlers import submission
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome


def record(driver: PoolDriver, job_id: int) -> JobRecord:
    """A job as stored."""
    [found] = driver.store().jobs(ids=[job_id])
    return found


# -- cancel ----------------------------------------------------------------------------------------


def test_what_was_never_started_costs_no_row() -> None:
    driver = PoolDriver()
    job = driver.submit(1_000_000)
    driver.cancel(job)
    assert record(driver, job).counts == Counts(cancelled=1_000_000)
    assert not [row for row in driver.records if isinstance(row, TaskRecord)]


def test_cancelling_twice_changes_nothing_more() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(10)
    driver.cancel(job)
    driver.cancel(job)
    assert driver.answers[-1].tasks == 1, "only the one that runs is left"
    driver.report("w", outcome=Outcome.KILLED)
    assert record(driver, job).counts == Counts(cancelled=10)


def test_a_task_that_waits_out_its_back_off_is_cancelled_too() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(max_failures=2)
    driver.fail("w")
    driver.cancel(job)
    assert driver.ended == [job]
    driver.wait(2.0)
    assert driver.held("w") == []


def test_a_cancelled_worker_is_free_for_the_next_job() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(5)
    driver.cancel(job)
    driver.report("w", outcome=Outcome.KILLED)
    other = driver.submit()
    assert driver.jobs_at("w") == [other]


def test_a_failure_during_the_cancelling_counts_as_cancelled() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(max_failures=3)
    driver.cancel(job)
    driver.fail("w")
    assert record(driver, job).counts == Counts(cancelled=1)


# -- outcome ---------------------------------------------------------------------------------------


def test_a_job_ends_with_its_last_task_and_says_how() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(3)
    driver.report("w")
    driver.fail("w")
    assert driver.ended == []
    driver.now += 5.0
    driver.report("w")
    ended = record(driver, job)
    assert (ended.state, ended.counts) == ("failed", Counts(done=2, failed=1))
    assert ended.ended_at == driver.now


def test_its_end_is_told_only_when_it_is_durable() -> None:
    assert fx.JobEnded.after_commit
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.report("w")
    kinds = [type(effect) for effect in driver.effects]
    assert kinds.index(fx.JobEnded) > max(i for i, kind in enumerate(kinds) if kind is fx.Persist)


# -- retry -----------------------------------------------------------------------------------------


def test_failed_tasks_of_an_ended_job_run_again_with_a_clean_slate() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(3, max_failures=2)
    driver.report("w")
    driver.report("w")
    for _ in range(2):
        driver.fail("w")
        driver.live(2.0)
    assert record(driver, job).state == "failed"
    assert driver.retry(job).tasks == 1
    driver.fail("w")
    driver.live(2.0)
    driver.report("w")
    ended = record(driver, job)
    assert (ended.state, ended.counts) == ("done", Counts(done=3))


def test_failed_tasks_of_an_active_job_run_again() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(3)
    driver.fail("w")
    assert driver.retry(job).tasks == 1
    indexes = []
    while driver.held("w"):
        indexes.append(driver.held("w")[0][2])
        driver.report("w")
    assert sorted(indexes) == [0, 1, 2]
    assert record(driver, job).counts == Counts(done=3)


def test_a_retried_job_survives_a_restart() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit()
    driver.fail("w")
    driver.lose("w")
    driver.retry(job)
    driver.restart()
    driver.wait(4.0)
    driver.join("w", incarnation="two")
    driver.report("w", seconds=0.1)
    assert record(driver, job).counts == Counts(done=1)


def test_retrying_what_went_well_changes_nothing() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit()
    driver.report("w")
    before = record(driver, job)
    driver.now += 60.0
    assert driver.retry(job).tasks == 0
    assert record(driver, job) == before
    assert driver.ended == [job], "it does not end a second time"
    assert not driver.pool.state.jobs


def test_retrying_twice_brings_back_nothing_more() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit()
    driver.fail("w")
    driver.lose("w")
    assert driver.retry(job).tasks == 1
    assert driver.retry(job).tasks == 0
    assert driver.pool.state.jobs[job].remaining == 1


def test_a_retry_is_refused_where_it_makes_no_sense() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2)
    assert driver.retry(99).error == "not-found"
    driver.cancel(job)
    assert driver.retry(job).error == "error"
    driver.report("w", outcome=Outcome.KILLED)
    assert driver.retry(job, rest=False).error == "usage"


def test_a_lost_task_can_be_retried() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(max_losses=1)
    driver.lose("w")
    assert record(driver, job).counts == Counts(lost=1)
    driver.retry(job)
    driver.join("w", incarnation="two")
    driver.report("w")
    assert record(driver, job).counts == Counts(done=1)
    assert driver.store().tasks(job)[0].state is TaskState.DONE


def test_what_dispatch_added_is_told_in_ascending_order() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(3)
    for added_seconds in (0.2, 0.3, 0.1):
        driver.now += 1.0 + added_seconds
        driver.report("w", seconds=1.0)
    [ended] = driver.of(fx.JobEnded)
    assert ended.dispatch_seconds == pytest.approx([0.1, 0.2, 0.3])


def test_a_task_that_was_cancelled_in_its_back_off_and_failed_again_counts_once() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(max_failures=3)
    driver.fail("w")
    driver.cancel(job)
    driver.retry(job)
    driver.fail("w")
    waiting = driver.pool.census(driver.now).waiting
    assert {reason: n for reason, n in waiting.items() if n} == {"backoff": 1}


def test_nor_does_its_first_back_off_cut_the_second_short() -> None:
    driver = PoolDriver(Config(backoff_seconds=30.0))
    driver.join("w")
    job = driver.submit(max_failures=3)
    driver.fail("w")
    driver.cancel(job)
    driver.live(20.0)
    driver.retry(job)
    driver.fail("w")
    [found] = driver.pool.explain(driver.pool.state.jobs[job], driver.now).job_reasons
    assert found.found == "1 task, the next in 30.0 s"
    driver.live(29.0)
    assert driver.held("w") == []
    driver.live(2.0)
    assert len(driver.held("w")) == 1


# -- single tasks are cancelled --------------------------------------------------------------------


def states(driver: PoolDriver, job_id: int) -> dict[int, TaskState]:
    """Tasks as stored."""
    return {row.index: row.state for row in driver.store().tasks(job_id)}


def test_single_tasks_are_cancelled_wherever_they_stand_and_the_others_run() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    job = driver.submit(6)
    answer = driver.cancel(job, 0, 4)
    assert (answer.error, answer.tasks) == (None, 2)
    [kill] = driver.of(fx.Kill)
    [(first, _, _), (second, _, _), *_] = driver.held("w")
    assert kill.numbers == [first]
    assert driver.pool.state.jobs[job].counts == Counts(cancelled=1), "the other one still runs"
    driver.report("w", (first, job, 0), outcome=Outcome.KILLED)
    driver.report("w", (second, job, 1))
    driver.finish_all()
    ended = record(driver, job)
    assert (ended.state, ended.counts) == ("cancelled", Counts(done=4, cancelled=2))
    assert [i for i, state in states(driver, job).items() if state is TaskState.CANCELLED] == [0, 4]


def test_cancelling_a_task_again_changes_nothing_more_and_one_that_ended_stays() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    job = driver.submit(3)
    driver.report("w")
    assert driver.cancel(job, 0).tasks == 0
    assert driver.cancel(job, 1).tasks == driver.cancel(job, 1).tasks == 1
    assert [h.index for h in driver.records if isinstance(h, Happening)] == [1]
    driver.report("w", outcome=Outcome.KILLED)
    assert driver.pool.state.jobs[job].counts == Counts(done=1, cancelled=1)


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.FAILED, Outcome.UNABLE, Outcome.KILLED])
def test_whatever_comes_of_a_cancelled_task_it_is_cancelled_and_its_output_kept(
    outcome: int,
) -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2, max_failures=3)
    driver.cancel(job, 0)
    driver.report("w", outcome=outcome, stdout=b"so far")
    assert states(driver, job)[0] is TaskState.CANCELLED
    assert driver.pool.state.jobs[job].counts == Counts(cancelled=1)
    if outcome != Outcome.UNABLE:
        [row] = driver.store().tasks(job)
        assert row.result is not None
        assert row.result.stdout == b"so far"
    driver.live(5.0)
    assert [index for _, _, index in driver.held("w")] == [1]


def test_a_task_that_was_cancelled_is_over_after_a_restart_and_killed_where_it_runs() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2)
    [attempt] = driver.held("w")
    driver.cancel(job, 0)
    driver.restart()
    driver.join("w", holds=[attempt])
    [welcome] = driver.of(fx.Welcome)
    assert welcome.kill == [attempt[0]]
    assert driver.pool.state.jobs[job].counts == Counts(cancelled=1)
    driver.finish_all()
    assert record(driver, job).counts == Counts(done=1, cancelled=1)


def test_a_cancelled_task_whose_worker_goes_away_is_over_even_if_its_job_would_wait() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2, on_worker_lost=OnWorkerLost.WAIT)
    driver.cancel(job, 0)
    driver.lose("w")
    assert states(driver, job) == {0: TaskState.CANCELLED}
    assert driver.pool.state.jobs[job].counts == Counts(cancelled=1)


def test_a_kill_that_was_not_heard_is_said_again_when_the_worker_comes_back() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2)
    [attempt] = driver.held("w")
    driver.cancel(job, 0)
    driver.join("w", holds=[attempt])
    [welcome] = driver.of(fx.Welcome)
    assert welcome.kill == [attempt[0]]


def test_a_single_task_that_was_cancelled_can_be_retried() -> None:
    driver = PoolDriver()
    job = driver.submit(2)
    driver.cancel(job, 1)
    assert driver.retry(job, rest=False).tasks == 1
    driver.join("w")
    driver.finish_all()
    assert record(driver, job).counts == Counts(done=2)


def test_a_task_too_far_ahead_is_refused_with_the_reason() -> None:
    driver = PoolDriver()
    job = driver.submit(1_000_000)
    answer = driver.cancel(job, 999_999)
    assert answer.error == "usage"
    assert "task 999999" in answer.message


def test_tasks_that_were_passed_over_count_until_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MOST_PASSED_OVER", 10)
    driver = PoolDriver()
    job = driver.submit(1_000)
    assert not driver.cancel(job, 9).error
    answer = driver.cancel(job, 12)
    assert answer.message == f"11 tasks of job {job} wait before task 12"
    assert not driver.cancel(job, 3, 10).error
    driver.join("w", cpus=8)
    assert not driver.cancel(job, 12).error, "most of those before it run"


# -- which attempt it is ---------------------------------------------------------------------------


def counts(driver: PoolDriver) -> list[int]:
    """Which attempts of their tasks were handed out that are not the first."""
    return [count for run in driver.of(fx.Run) for _, count in run.counts]


def test_attempts_count_from_one_with_each_failure_and_loss_of_their_task() -> None:
    driver = PoolDriver(Config(backoff_seconds=0.0, max_backoff_seconds=0.0))
    driver.join("w")
    job = driver.submit(3, max_failures=9, max_losses=9)
    assert counts(driver) == [], "the first costs nothing"
    driver.fail("w")
    assert counts(driver) == [2]
    [(number, _, index)] = driver.held("w")
    assert driver.of(fx.Run)[0].counts == [(number, 2)]
    driver.lose("w", begun=False)  # not held against it, and an attempt all the same
    driver.join("w", incarnation="two")
    assert (counts(driver), driver.held("w")[0][1:]) == ([3], (job, index))
    driver.report("w")
    assert counts(driver) == [], "of another task it is the first"


def test_attempts_go_on_counting_after_a_restart() -> None:
    driver = PoolDriver(Config(backoff_seconds=0.0, max_backoff_seconds=0.0))
    driver.join("w")
    driver.submit(max_failures=9)
    driver.fail("w")
    driver.fail("w")
    driver.restart()
    driver.join("w", incarnation="two")
    driver.live(60.0)
    assert driver.pool.state.workers["w"].held
    [task] = driver.pool.state.workers["w"].held.values()
    assert task.failures == 2
    assert task.next_count == 3
