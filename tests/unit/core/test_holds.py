"""A job on hold hands nothing more out; what runs goes on, and nothing is lost."""

from __future__ import annotations

import pytest
from jobkit import job_spec
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.ending_rules import problem_with_endings
from kestrelctl.core.model.job.hold import MAX_HOLD_REASON_CHARACTERS, SUBMITTED_SO, Hold
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.records import Happening, JobRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome


def job_row(driver: PoolDriver) -> JobRecord:
    return [record for record in driver.records if isinstance(record, JobRecord)][-1]


def told(driver: PoolDriver, what: str) -> list[tuple[str, str]]:
    """By whom and why something happened, each time."""
    return [
        (record.cause, record.detail)
        for record in driver.records
        if isinstance(record, Happening) and record.what == what
    ]


def test_what_waits_at_a_worker_is_given_back_and_counts_nothing() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(1_000)
    driver.submit(100, owner="bob")
    while set(driver.jobs_at("w")[1:]) != {1, 2}:
        driver.report("w", driver.held("w")[0], seconds=0.01)
    before = driver.held("w")
    driver.hold(job)
    [wish] = driver.of(fx.Recall)
    assert wish.numbers == [number for number, its, _ in before[1:] if its == job]
    driver.give_back()
    assert [its for _, its, _ in driver.held("w")[1:] if its == job] == []
    assert driver.pool.state.jobs[job].counts.failed == 0
    assert told(driver, "recalled") == told(driver, "given-back") == []
    driver.release(job)
    for _ in range(2_000):
        if driver.held("w"):
            driver.report("w", driver.held("w")[0], seconds=0.01)
    assert driver.pool.state.jobs == {}


def test_what_a_drain_takes_back_is_told_though_the_worker_was_making_room() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(1_000)
    while len(driver.held("w")) < 20:
        driver.report("w", driver.held("w")[0], seconds=0.01)
    driver.hold(job)
    (for_room,) = driver.of(fx.Recall)
    driver.tell(ev.Drain(at=driver.now, worker="w", by="admin"))
    driver.tell(ev.Returned(at=driver.now, worker="w", numbers=for_room.numbers[:2]))
    driver.tell(ev.Returned(at=driver.now, worker="w", numbers=for_room.numbers[2:]))
    assert len(told(driver, "recalled")) == len(for_room.numbers) - 2
    assert told(driver, "given-back") == []
    assert not driver.pool.state.workers["w"].recalls


def test_a_held_job_hands_nothing_more_out_and_what_runs_goes_on() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(3)
    answer = driver.hold(job, "disk full")
    assert (answer.job_id, answer.tasks, answer.repeated) == (job, 2, False)
    assert not driver.of(fx.Kill)
    driver.report("w")
    assert driver.pool.state.jobs[job].counts == Counts(done=1)
    assert driver.held("w") == []
    assert driver.pool.census(driver.now).waiting[Reason.HELD] == 2
    driver.release(job)
    driver.finish_all()
    assert (driver.ended, job_row(driver).counts) == ([job], Counts(done=3))


def test_another_job_of_the_same_shape_goes_on() -> None:
    driver = PoolDriver()
    driver.join("w")
    first, second = driver.submit(2), driver.submit(2)
    driver.hold(first)
    driver.finish_all()
    assert driver.ended == [second]


def test_it_is_known_who_holds_a_job_since_when_and_why() -> None:
    driver = PoolDriver()
    job = driver.submit()
    driver.hold(job, "disk full")
    hold = Hold("ada", driver.now, "disk full")
    assert driver.pool.state.jobs[job].hold == job_row(driver).hold == hold
    driver.restart()
    assert driver.pool.state.jobs[job].hold == hold
    driver.join("w")
    assert driver.held("w") == []
    assert told(driver, "held") == [("ada", "disk full")]


def test_a_release_outlasts_the_manager() -> None:
    driver = PoolDriver()
    job = driver.submit()
    driver.hold(job)
    driver.release(job)
    driver.restart()
    driver.join("w")
    assert driver.jobs_at("w") == [job]
    assert told(driver, "released") == [("ada", "")]


def test_a_second_hold_leaves_the_first_as_it_is_and_says_so() -> None:
    driver = PoolDriver()
    job = driver.submit()
    driver.hold(job, "disk full")
    driver.now += 5.0
    answer = driver.hold(job, "another reason", by="root")
    assert (answer.repeated, answer.tasks) == (True, 0)
    assert job_row(driver).hold == Hold("ada", driver.now - 5.0, "disk full")
    assert len(told(driver, "held")) == 1


def test_the_release_of_a_job_that_is_not_held_says_so() -> None:
    driver = PoolDriver()
    answer = driver.release(driver.submit())
    assert (answer.error, answer.repeated) == (None, True)
    assert told(driver, "released") == []


def test_what_is_not_active_cannot_be_held_or_released() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit()
    driver.finish_all()
    assert driver.hold(job).error == driver.release(job).error == "not-found"
    second = driver.submit()
    driver.cancel(second)
    assert "being cancelled" in driver.hold(second).message


def test_what_fails_or_is_lost_meanwhile_waits_for_the_release() -> None:
    driver = PoolDriver()
    driver.join("v", "w")
    job = driver.submit(2, max_failures=3)
    driver.hold(job)
    driver.fail("v")
    driver.lose("w")
    driver.join("w", incarnation="two")
    driver.live(100.0)
    assert (driver.held("v"), driver.held("w")) == ([], [])
    assert driver.pool.census(driver.now).waiting[Reason.HELD] == 2
    driver.release(job)
    driver.finish_all()
    assert job_row(driver).counts == Counts(done=2)


def test_what_waits_with_more_memory_is_held_too() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2, memory_bytes=8 << 30)
    job = driver.submit(memory_bytes=1 << 30, retry_memory_bytes=(2 << 30,))
    driver.hold(job)
    driver.fail("w", reason="memory-limit: more than 1 GiB")
    assert driver.held("w") == []
    driver.release(job)
    assert driver.jobs_at("w") == [job]


def test_a_held_job_whose_last_tasks_run_ends_without_a_release() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit()
    driver.hold(job)
    driver.finish_all()
    assert driver.ended == [job]
    assert (job_row(driver).state, job_row(driver).hold) == ("done", None)


def test_a_cancel_ends_a_hold_with_the_job() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2)
    driver.hold(job)
    driver.cancel(job)
    assert (job_row(driver).cancelling, job_row(driver).hold) == (True, None)
    driver.report("w", outcome=Outcome.KILLED)
    assert (driver.ended, job_row(driver).state) == ([job], "cancelled")


def test_the_deadline_of_a_held_job_stops_it() -> None:
    driver = PoolDriver()
    job = driver.submit(2, deadline_seconds=30.0)
    driver.hold(job)
    driver.live(31.0)
    driver.wait(31.0)
    assert (driver.ended, job_row(driver).stopped_by) == ([job], "deadline")


def test_tasks_of_a_held_job_can_be_retried_and_wait() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2)
    driver.hold_back()
    driver.fail("w")
    driver.hold(job)
    driver.let_go()
    assert driver.retry(job).tasks == 1
    assert driver.held("w") == []
    driver.release(job)
    driver.finish_all()
    assert job_row(driver).counts == Counts(done=2)


def test_a_job_may_be_submitted_on_hold() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2, held=True)
    assert driver.held("w") == []
    assert job_row(driver).hold == Hold("ada", driver.now, SUBMITTED_SO)
    assert told(driver, "held") == [("", SUBMITTED_SO)]
    driver.release(job)
    driver.finish_all()
    assert driver.ended == [job]
    driver.retry(job)


def test_what_was_submitted_on_hold_is_not_held_when_it_is_brought_back() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(held=True)
    driver.release(job)
    driver.fail("w")
    driver.retry(job)
    assert driver.jobs_at("w") == [job]


def test_copies_of_a_held_service_run_on_and_are_not_started_again() -> None:
    driver = PoolDriver()
    driver.join("v", "w")
    job = driver.submit(2, service=True)
    driver.hold(job)
    assert not driver.of(fx.Kill)
    driver.report("v")
    driver.live(100.0)
    assert (driver.held("v"), driver.jobs_at("w")) == ([], [job])
    driver.release(job)
    assert driver.jobs_at("v") == [job]


def test_explain_says_who_holds_it_and_why() -> None:
    driver = PoolDriver()
    job = driver.submit(2)
    driver.hold(job, "disk full")
    found = driver.pool.explain(driver.pool.state.jobs[job], driver.now).job_reasons[0]
    assert (found.reason, found.found) == (Reason.HELD, "by ada: disk full")


def test_a_job_does_not_starve_on_hold() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2)
    driver.hold(job)
    driver.live(100.0)
    driver.release(job)
    assert driver.pool.state.jobs[job].waits_since == driver.now


# -- by the pool -----------------------------------------------------------------------------------


def test_the_pool_holds_a_job_after_so_many_failures_in_a_row() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(10, hold_after=3)
    for _ in range(2):
        driver.fail("w", exit_code=7)
        assert driver.pool.state.jobs[job].hold is None
    driver.fail("w", exit_code=7)
    reason = "3 attempts in a row failed, the last: exit code 7"
    assert job_row(driver).hold == Hold("pool", driver.now, reason)
    assert told(driver, "held") == [("pool", reason)]
    assert [note.level for note in driver.of(fx.Note) if "on hold" in note.text] == ["warning"]
    driver.live(100.0)
    assert driver.held("w") == []
    assert driver.retry(job).tasks == 3
    driver.release(job)
    driver.finish_all()
    assert job_row(driver).counts == Counts(done=10)


def test_a_success_in_between_begins_the_row_anew() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(10, hold_after=2)
    for _ in range(3):
        driver.fail("w")
        driver.report("w")
    assert driver.pool.state.jobs[job].hold is None


def test_attempts_that_are_retried_count_as_well() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(1, hold_after=2, max_failures=5)
    driver.fail("w")
    driver.live(10.0)
    driver.fail("w")
    driver.live(100.0)
    assert (driver.held("w"), driver.ended) == ([], [])
    driver.release(job)
    driver.finish_all()
    assert driver.ended == [job]


def test_after_a_release_failures_are_counted_anew() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(10, hold_after=2)
    driver.fail("w")
    driver.fail("w")
    driver.release(job)
    driver.fail("w")
    assert driver.pool.state.jobs[job].hold is None
    driver.fail("w")
    assert driver.pool.state.jobs[job].hold is not None


def test_a_job_without_a_bound_is_never_held() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(50)
    for _ in range(40):
        driver.now += 100.0
        driver.live(1.0)
        driver.fail("w")
    assert driver.pool.state.jobs[job].hold is None


def test_a_user_s_hold_is_not_replaced_by_the_pool_s() -> None:
    driver = PoolDriver()
    driver.join("v", "w")
    job = driver.submit(10, hold_after=2)
    driver.hold(job, "mine")
    driver.fail("v")
    driver.fail("w")
    assert job_row(driver).hold == Hold("ada", driver.now, "mine")


def test_a_job_that_has_failed_to_the_last_task_ends_and_is_not_held() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(2, hold_after=2)
    driver.fail("w")
    driver.fail("w")
    assert (driver.ended, told(driver, "held")) == ([job], [])


def test_the_reason_of_an_attempt_is_cut_in_that_of_a_hold() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(5, hold_after=1)
    driver.fail("w", reason="x" * 10_000)
    hold = job_row(driver).hold
    assert hold is not None
    assert len(hold.reason) == MAX_HOLD_REASON_CHARACTERS


def test_the_cause_of_what_else_a_report_does_is_not_the_pool() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(5, hold_after=1, max_failures=3)
    attempts = driver.held("w")
    driver.fail("w", *attempts)
    causes = [record.cause for record in driver.records if isinstance(record, Happening)]
    assert causes.count("pool") == 1


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"hold_after": 0}, "1 to 1,000,000 failures"),
        ({"hold_after": 1_000_001}, "1 to 1,000,000 failures"),
        ({"hold_after": 3, "service": True}, "never fails"),
    ],
)
def test_bounds_that_cannot_be_are_refused(rules: dict[str, int], word: str) -> None:
    assert word in (problem_with_endings(job_spec(**rules)) or "")


def test_a_job_that_is_not_durable_yet_is_held_at_once() -> None:
    driver = PoolDriver()
    driver.join("w")
    spec = JobSpec(program=Program(argv=("true",)))
    driver.pool.handle(ev.Submit(at=driver.now, request="s", owner="ada", spec=spec))
    [job] = driver.pool.jobs
    driver.hold(job.id)
    driver.tell(ev.JobStored(at=driver.now, job_id=job.id))
    assert driver.held("w") == []
