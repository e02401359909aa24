"""Jobs are cancelled, retried, and end."""

from __future__ import annotations

import pytest
from poolkit import Desk

from kestrelctl.core import effects as fx
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.task_state import Counts, TaskState


def record(desk: Desk, job_id: int) -> JobRecord:
    """A job as stored."""
    [found] = desk.store().jobs(ids=[job_id])
    return found


# -- cancel ----------------------------------------------------------------------------------------


def test_what_was_never_started_costs_no_row() -> None:
    desk = Desk()
    job = desk.submit(1_000_000)
    desk.cancel(job)
    assert record(desk, job).counts == Counts(cancelled=1_000_000)
    assert not [row for row in desk.records if isinstance(row, TaskRecord)]


def test_cancelling_twice_changes_nothing_more() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(10)
    desk.cancel(job)
    desk.cancel(job)
    assert desk.answers[-1].tasks == 1, "only the one that runs is left"
    desk.report("w", outcome=Outcome.KILLED)
    assert record(desk, job).counts == Counts(cancelled=10)


def test_a_task_that_waits_out_its_back_off_is_cancelled_too() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(max_failures=2)
    desk.fail("w")
    desk.cancel(job)
    assert desk.ended == [job]
    desk.wait(2.0)
    assert desk.held("w") == []


def test_a_cancelled_worker_is_free_for_the_next_job() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(5)
    desk.cancel(job)
    desk.report("w", outcome=Outcome.KILLED)
    other = desk.submit()
    assert desk.jobs_at("w") == [other]


def test_a_failure_during_the_cancelling_counts_as_cancelled() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(max_failures=3)
    desk.cancel(job)
    desk.fail("w")
    assert record(desk, job).counts == Counts(cancelled=1)


# -- outcome ---------------------------------------------------------------------------------------


def test_a_job_ends_with_its_last_task_and_says_how() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(3)
    desk.report("w")
    desk.fail("w")
    assert desk.ended == []
    desk.now += 5.0
    desk.report("w")
    ended = record(desk, job)
    assert (ended.state, ended.counts) == ("failed", Counts(done=2, failed=1))
    assert ended.ended_at == desk.now


def test_its_end_is_told_only_when_it_is_durable() -> None:
    assert fx.JobEnded.after_commit
    desk = Desk()
    desk.join("w")
    desk.submit()
    desk.report("w")
    kinds = [type(effect) for effect in desk.effects]
    assert kinds.index(fx.JobEnded) > max(i for i, kind in enumerate(kinds) if kind is fx.Persist)


# -- retry -----------------------------------------------------------------------------------------


def test_failed_tasks_of_an_ended_job_run_again_with_a_clean_slate() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(3, max_failures=2)
    desk.report("w")
    desk.report("w")
    for _ in range(2):
        desk.fail("w")
        desk.live(2.0)
    assert record(desk, job).state == "failed"
    assert desk.retry(job).tasks == 1
    desk.fail("w")
    desk.live(2.0)
    desk.report("w")
    ended = record(desk, job)
    assert (ended.state, ended.counts) == ("done", Counts(done=3))


def test_failed_tasks_of_an_active_job_run_again() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(3)
    desk.fail("w")
    assert desk.retry(job).tasks == 1
    indexes = []
    while desk.held("w"):
        indexes.append(desk.held("w")[0][2])
        desk.report("w")
    assert sorted(indexes) == [0, 1, 2]
    assert record(desk, job).counts == Counts(done=3)


def test_a_retried_job_survives_a_restart() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit()
    desk.fail("w")
    desk.lose("w")
    desk.retry(job)
    desk.restart()
    desk.wait(4.0)
    desk.join("w", incarnation="two")
    desk.report("w", seconds=0.1)
    assert record(desk, job).counts == Counts(done=1)


def test_retrying_what_went_well_changes_nothing() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit()
    desk.report("w")
    before = record(desk, job)
    desk.now += 60.0
    assert desk.retry(job).tasks == 0
    assert record(desk, job) == before
    assert desk.ended == [job], "it does not end a second time"
    assert not desk.pool.state.jobs


def test_retrying_twice_brings_back_nothing_more() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit()
    desk.fail("w")
    desk.lose("w")
    assert desk.retry(job).tasks == 1
    assert desk.retry(job).tasks == 0
    assert desk.pool.state.jobs[job].remaining == 1


def test_a_retry_is_refused_where_it_makes_no_sense() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(2)
    assert desk.retry(job, by="bob").error == "not-allowed"
    assert desk.retry(99).error == "not-found"
    desk.cancel(job)
    assert desk.retry(job).error == "error"
    desk.report("w", outcome=Outcome.KILLED)
    assert desk.retry(job, rest=False).error == "usage"


def test_a_lost_task_can_be_retried() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(max_losses=1)
    desk.lose("w")
    assert record(desk, job).counts == Counts(lost=1)
    desk.retry(job)
    desk.join("w", incarnation="two")
    desk.report("w")
    assert record(desk, job).counts == Counts(done=1)
    assert desk.store().tasks(job)[0].state is TaskState.DONE


def test_what_dispatch_added_is_told_in_ascending_order() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(3)
    for added_seconds in (0.2, 0.3, 0.1):
        desk.now += 1.0 + added_seconds
        desk.report("w", seconds=1.0)
    [ended] = desk.of(fx.JobEnded)
    assert ended.dispatch_seconds == pytest.approx([0.1, 0.2, 0.3])


def test_a_stranger_is_not_told_how_a_job_is() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(2)
    desk.cancel(job)
    assert desk.retry(job, by="bob").error == "not-allowed"
    assert desk.retry(job, by="bob", rest=False).error == "not-allowed"
