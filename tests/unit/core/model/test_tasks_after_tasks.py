"""Tasks that wait for those of another job, one for one, start when these have ended well."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.job import Job, Standing
from kestrelctl.core.model.job.after import After, IfParentFails
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome, Result

CANCEL, WAIT, RUN = IfParentFails


@pytest.fixture
def driver() -> PoolDriver:
    found = PoolDriver()
    found.join("w", cpus=4)
    return found


def at(driver: PoolDriver, job_id: int) -> list[int]:
    """The tasks of a job that the worker has."""
    return sorted(index for _, job, index in driver.held("w") if job == job_id)


def end(driver: PoolDriver, job_id: int, *indexes: int, well: bool = True) -> None:
    """Some tasks of a job end that the worker has."""
    for attempt in driver.held("w"):
        if attempt[1] == job_id and attempt[2] in indexes:
            (driver.report if well else driver.fail)("w", attempt)


def job_of(driver: PoolDriver, job_id: int) -> Job:
    return driver.pool.state.jobs[job_id]


def state_of(driver: PoolDriver, job_id: int) -> str:
    return record_of(driver, job_id).state


def record_of(driver: PoolDriver, job_id: int) -> JobRecord:
    [record] = driver.store().jobs(ids=[job_id])
    return record


def test_a_task_starts_when_its_parents_has_ended_well_and_others_wait(driver: PoolDriver) -> None:
    parent = driver.submit(4)
    child = driver.submit(4, after_each=parent)
    driver.wait(1)
    assert at(driver, child) == []
    end(driver, parent, 2)
    driver.wait(1)
    assert at(driver, child) == [2]
    end(driver, parent, 0)
    driver.wait(1)
    assert at(driver, child) == [0, 2]
    driver.finish_all()
    assert state_of(driver, child) == "done"


def test_it_starts_after_that_end_is_durable_and_not_before(driver: PoolDriver) -> None:
    parent = driver.submit(2)
    child = driver.submit(2, after_each=parent)
    driver.wait(1)
    number, job_id, index = driver.held("w")[0]
    result = Result(number, job_id, index, Outcome.DONE, driver.now, 1.0)
    reported = ev.Reported(at=driver.now, worker="w", results=[result], seals=[])
    found = [*driver.pool.handle(reported), *driver.pool.schedule(driver.now)]
    [closed] = [each for each in found if isinstance(each, fx.Feed)]
    assert at(driver, child) == []
    assert closed.urgent
    driver.tell(closed.event)
    assert at(driver, child) == [index]


def test_nobody_is_fed_where_nobody_waits(driver: PoolDriver) -> None:
    driver.submit(2)
    driver.wait(1)
    driver.report("w")
    assert not driver.of(fx.Feed)


def test_ends_of_one_burst_come_as_one(driver: PoolDriver) -> None:
    parent = driver.submit(4)
    driver.submit(4, after_each=parent)
    driver.wait(1)
    driver.report("w", *driver.held("w")[:3])
    [closed] = [each.event for each in driver.of(fx.Feed)]
    assert isinstance(closed, ev.TasksClosed)
    assert closed.done == [(0, 2)]


def test_what_ended_before_the_submission_counts(driver: PoolDriver) -> None:
    parent = driver.submit(4)
    driver.wait(1)
    end(driver, parent, 1, 3)
    end(driver, parent, 0, well=False)
    child = driver.submit(4, after_each=parent)
    driver.wait(1)
    assert at(driver, child) == [1, 3]
    assert job_of(driver, child).counts.cancelled == 1


@pytest.mark.parametrize(("otherwise", "state"), [(CANCEL, "cancelled"), (RUN, "done")])
def test_a_job_that_had_ended_counts_as_well(
    driver: PoolDriver, otherwise: IfParentFails, state: str
) -> None:
    parent = driver.submit(3)
    driver.wait(1)
    end(driver, parent, 0, 1)
    end(driver, parent, 2, well=False)
    child = driver.submit(3, after_each=parent, if_parent_fails=otherwise)
    driver.wait(1)
    driver.finish_all()
    record = record_of(driver, child)
    assert (record.state, record.counts.cancelled) == (state, int(otherwise is CANCEL))


def test_what_one_child_may_do_is_not_told_to_another(driver: PoolDriver) -> None:
    parent = driver.submit(2)
    driver.wait(1)
    end(driver, parent, 0, well=False)
    strict = driver.submit(2, after_each=parent)
    driver.submit(2, after_each=parent, if_parent_fails=RUN, held=True)
    driver.wait(1)
    assert at(driver, strict) == []
    assert job_of(driver, strict).counts.cancelled == 1


def test_by_default_the_task_behind_a_failed_one_is_cancelled_and_others_go_on(
    driver: PoolDriver,
) -> None:
    parent = driver.submit(4)
    child = driver.submit(4, after_each=parent)
    behind = driver.submit(4, after_each=child)
    driver.wait(1)
    end(driver, parent, 3)
    driver.wait(1)
    end(driver, parent, 1, well=False)
    driver.wait(1)
    assert job_of(driver, child).counts.cancelled == 1
    assert job_of(driver, behind).counts.cancelled == 1
    driver.finish_all()
    for job_id in (child, behind):
        record = record_of(driver, job_id)
        assert (record.state, record.counts.done, record.counts.cancelled) == ("cancelled", 3, 1)


def test_what_is_cancelled_beyond_the_cursor_has_neither_object_nor_row(
    driver: PoolDriver,
) -> None:
    parent = driver.submit(4)
    child = driver.submit(4, after_each=parent, held=True)
    driver.wait(1)
    end(driver, parent, 0, 1)
    end(driver, parent, 2, well=False)
    job = job_of(driver, child)
    assert (job.live, job.cursor, job.waiting, job.remaining) == ({}, 0, 2, 3)
    assert not driver.store().tasks(child)


def test_a_cancelled_task_gets_its_row_when_the_cursor_passes_it_over(driver: PoolDriver) -> None:
    parent = driver.submit(3)
    child = driver.submit(3, after_each=parent)
    driver.wait(1)
    end(driver, parent, 0, well=False)
    assert driver.store().tasks(child) == []
    end(driver, parent, 1)
    driver.wait(1)
    [row] = driver.store().tasks(child)
    assert (row.index, row.state) == (0, TaskState.CANCELLED)


def test_tasks_have_objects_that_the_cursor_has_passed_over_and_no_others(
    driver: PoolDriver,
) -> None:
    parent = driver.submit(1_000, max_running=3)
    child = driver.submit(1_000, after_each=parent)
    driver.wait(1)
    end(driver, parent, 2)
    driver.wait(1)
    job = job_of(driver, child)
    standings = {index: task.standing for index, task in job.live.items()}
    behind = {0: Standing.BEHIND, 1: Standing.BEHIND}
    assert standings == {**behind, 2: Standing.UNDER_WAY}
    assert job.waiting_behind == 999


def test_wait_leaves_it_waiting_until_the_parents_is_retried(driver: PoolDriver) -> None:
    parent = driver.submit(2)
    child = driver.submit(2, after_each=parent, if_parent_fails=WAIT)
    driver.wait(1)
    end(driver, parent, 0, well=False)
    end(driver, parent, 1)
    driver.wait(1)
    end(driver, child, 1)
    driver.wait(1)
    assert job_of(driver, child).remaining == 1
    driver.retry(parent)
    driver.finish_all()
    assert state_of(driver, child) == "done"


def test_run_starts_it_however_the_parents_has_ended(driver: PoolDriver) -> None:
    parent = driver.submit(2)
    child = driver.submit(2, after_each=parent, if_parent_fails=RUN)
    driver.wait(1)
    end(driver, parent, 0, well=False)
    driver.wait(1)
    assert at(driver, child) == [0]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_retry_of_the_parent_brings_back_what_was_cancelled_for_it(
    driver: PoolDriver, restarted: bool
) -> None:
    parent = driver.submit(4)
    child = driver.submit(4, after_each=parent)
    behind = driver.submit(4, after_each=child)
    driver.wait(1)
    end(driver, parent, 2, 3)
    end(driver, parent, 0, well=False)  # The cursor of the child has passed it over.
    driver.wait(1)
    driver.cancel(parent, 1)
    driver.live(5)
    end(driver, parent, 1)
    if restarted:
        driver.restart()
        driver.join("w", cpus=4, holds=[], incarnation="two")
        driver.live(200)
    assert [job_of(driver, each).counts.cancelled for each in (child, behind)] == [2, 2]
    driver.retry(parent)
    assert [job_of(driver, each).counts.cancelled for each in (child, behind)] == [0, 0]
    driver.live(5)
    driver.finish_all()
    assert [state_of(driver, each) for each in (parent, child, behind)] == ["done"] * 3


def test_a_retry_of_a_child_that_has_ended_brings_back_only_what_is_not_in_vain(
    driver: PoolDriver,
) -> None:
    parent = driver.submit(3)
    child = driver.submit(3, after_each=parent)
    driver.wait(1)
    end(driver, parent, 0, 1)
    end(driver, parent, 2, well=False)
    driver.wait(1)
    end(driver, child, 0)
    end(driver, child, 1, well=False)
    assert state_of(driver, child) == "failed"
    assert driver.retry(child).tasks == 1
    driver.wait(1)
    assert at(driver, child) == [1]
    driver.finish_all()
    refused = driver.retry(child)
    assert (refused.error, refused.hint) == (
        "usage",
        f"`kestrelctl job retry {parent}` brings both back",
    )


def test_a_task_that_a_user_cancelled_runs_after_a_retry_though_its_parents_had_ended_before(
    driver: PoolDriver,
) -> None:
    parent = driver.submit(3)
    child = driver.submit(3, after_each=parent)
    driver.wait(1)
    end(driver, parent, 0, 1)
    driver.wait(1)
    driver.cancel(child, 1)
    [killed] = [attempt for attempt in driver.held("w") if attempt[1:] == (child, 1)]
    driver.report("w", killed, outcome=Outcome.KILLED, reason="cancelled")
    driver.live(5)
    assert job_of(driver, child).counts.cancelled == 1
    assert driver.retry(child).tasks == 1
    driver.live(5)
    assert 1 in at(driver, child)
    end(driver, parent, 2)
    driver.finish_all()
    assert state_of(driver, child) == "done"


def test_a_cancel_of_the_parent_cancels_what_waits_for_its_tasks(driver: PoolDriver) -> None:
    parent = driver.submit(1_000)
    child = driver.submit(1_000, after_each=parent)
    driver.wait(1)
    end(driver, parent, 0)
    driver.wait(1)
    driver.cancel(parent)
    driver.report("w", *[each for each in driver.held("w") if each[1] == parent])
    driver.wait(1)
    driver.finish_all()
    assert record_of(driver, child).counts.done >= 1
    assert record_of(driver, child).counts.total() == 1_000
    assert len(driver.store().tasks(child)) < 10


def test_a_task_that_is_cancelled_for_its_parents_and_with_its_job_counts_once(
    driver: PoolDriver,
) -> None:
    first = driver.submit(6)
    second = driver.submit(6, after_each=first)
    driver.wait(1)
    driver.cancel(first)
    assert job_of(driver, second).counts.cancelled == 2, "the two that had not started"
    cancel = ev.Cancel(at=driver.now, request="c", job_id=second)
    driver.pool.handle(cancel)  # it has ended, and that is not durable yet
    before = driver.pool.state.totals.tasks_cancelled
    driver.submit(6, after_each=second)
    assert driver.pool.state.totals.tasks_cancelled - before == 6


def test_the_freed_come_lowest_first_and_after_a_restart_again(driver: PoolDriver) -> None:
    parent = driver.submit(12)
    child = driver.submit(12, after_each=parent, held=True)
    driver.wait(1)
    for index in (2, 0, 3):
        end(driver, parent, index)
    end(driver, parent, 1, well=False)
    driver.restart()
    driver.join("w", cpus=4, holds=[], incarnation="two")
    driver.live(200)
    job = job_of(driver, child)
    assert job.pairing is not None
    assert list(job.pairing.free) == [(0, 0), (2, 3)]
    assert job.counts.cancelled == 1
    assert job.live == {}
    driver.cancel(parent)
    driver.report("w", *driver.held("w"), outcome=Outcome.KILLED)
    driver.release(child)
    driver.wait(1)
    assert at(driver, child) == [0, 2, 3]


def test_a_restart_forgets_nothing_of_a_parent_that_has_ended(driver: PoolDriver) -> None:
    parent = driver.submit(4)
    child = driver.submit(4, after_each=parent, held=True)
    driver.wait(1)
    end(driver, parent, 0, 2, 3)
    end(driver, parent, 1, well=False)
    driver.restart()
    driver.join("w", cpus=4, incarnation="two")
    driver.live(200)
    driver.release(child)
    driver.wait(1)
    assert at(driver, child) == [0, 2, 3]
    driver.finish_all()
    counts = record_of(driver, child).counts
    assert (counts.done, counts.cancelled) == (3, 1)


def test_it_may_wait_for_a_whole_job_besides(driver: PoolDriver) -> None:
    first = driver.submit()
    parent = driver.submit(2)
    child = driver.submit(2, after_each=parent, after=(After(first, first),))
    driver.wait(1)
    end(driver, parent, 0, 1)
    driver.wait(1)
    assert at(driver, child) == []
    end(driver, first, 0)
    driver.wait(1)
    assert at(driver, child) == [0, 1]


def test_the_parent_is_kept_as_long_as_tasks_wait_for_its_tasks(driver: PoolDriver) -> None:
    parent = driver.submit(2)
    child = driver.submit(2, after_each=parent, held=True)
    driver.wait(1)
    end(driver, parent, 0, 1)
    driver.tell(ev.Expire(at=driver.now, job_ids=[parent]))
    assert state_of(driver, parent) == "done"
    record = record_of(driver, parent)
    driver.tell(ev.Forget(at=driver.now, request="f", record=record))
    assert driver.answers[-1].error == "usage"
    driver.release(child)
    driver.finish_all()
    driver.tell(ev.Expire(at=driver.now, job_ids=[parent]))
    assert not driver.store().jobs(ids=[parent])
    assert driver.retry(child).error is not None or state_of(driver, child) == "done"


@pytest.mark.parametrize("vain", [False, True])
def test_what_had_started_can_be_retried_when_the_parent_is_forgotten(
    driver: PoolDriver,
    vain: bool,
) -> None:
    parent = driver.submit(2)
    child = driver.submit(2, after_each=parent)
    driver.wait(1)
    end(driver, parent, 0)
    end(driver, parent, 1, well=not vain)
    driver.wait(1)
    end(driver, child, 1)
    end(driver, child, 0, well=False)
    driver.tell(ev.Expire(at=driver.now, job_ids=[parent]))
    answer = driver.retry(child)
    if vain:
        assert answer.message.endswith(f"wait for those of job {parent}, which is forgotten")
        return
    assert answer.tasks == 1
    driver.restart()
    driver.join("w", cpus=4, incarnation="two")
    driver.live(200)
    assert at(driver, child) == [0]
    driver.finish_all()
    assert state_of(driver, child) == "done"


@pytest.mark.parametrize(
    ("count", "owner", "parent", "message"),
    [
        (3, "ada", {}, "it has 3 tasks, and job 1 has 2"),
        (2, "bob", {}, "there is no job 1"),
        (2, "ada", {"service": True}, "is a service"),
        (2, "ada", {"span": 2}, "spans workers"),
    ],
)
def test_a_parent_that_does_not_fit_is_refused(
    driver: PoolDriver, count: int, owner: str, parent: dict[str, object], message: str
) -> None:
    driver.submit(2, **parent)  # type: ignore[arg-type]
    driver.submit(count, owner=owner, after_each=1)
    answer = driver.answers[-1]
    assert answer.error is not None
    assert message in answer.message
    assert len(driver.pool.state.jobs) == 1


def test_jobs_of_one_file_may_wait_task_by_task(driver: PoolDriver) -> None:
    first = driver.submit_graph((), (), each={1: 0}, count=2)
    driver.wait(1)
    end(driver, first, 1)
    driver.wait(1)
    assert at(driver, first + 1) == [1]


def test_explain_says_what_is_waited_for_and_how_much_is_free(driver: PoolDriver) -> None:
    parent = driver.submit(10)
    child = driver.submit(10, after_each=parent)
    driver.wait(1)
    [why] = driver.pool.explain(job_of(driver, child), driver.now).job_reasons
    assert why.reason is Reason.PARENTS
    assert why.found == f"task by task for job {parent}: 0 tasks free to start, 10 behind theirs"
    assert driver.pool.census(driver.now).waiting["parents"] == 10


def test_a_late_word_of_a_bad_end_does_not_cancel_what_was_brought_back(
    driver: PoolDriver,
) -> None:
    parent = driver.submit(2)
    child = driver.submit(2, after_each=parent)
    driver.wait(1)
    end(driver, parent, 0, well=False)
    driver.retry(parent)
    driver.tell(ev.TasksClosed(at=driver.now, job_id=parent, bad=[(0, 0)]))
    assert job_of(driver, child).counts.cancelled == 0


def test_a_thousand_jobs_in_a_row_are_cancelled_in_one_go(driver: PoolDriver) -> None:
    parent = driver.submit()
    jobs = 1_200
    first = driver.submit_graph(*[()] * jobs, each={n: n - 1 for n in range(1, jobs)}, held=True)
    last = driver.submit(after_each=parent)
    driver.wait(1)
    driver.cancel(first)
    assert state_of(driver, first + jobs - 1) == "cancelled"
    end(driver, parent, 0)
    driver.finish_all()
    assert state_of(driver, last) == "done"


def test_a_job_is_not_taken_for_a_missing_one_by_its_name(driver: PoolDriver) -> None:
    """The kind of a refusal does not come from its words, some of which are a user's."""
    parent = JobSpec(program=Program(argv=("a",)), name="there is no job", service=True)
    driver.tell(
        ev.SubmitGraph(
            at=driver.now,
            request="g",
            owner="ada",
            specs=[parent, JobSpec(program=Program(argv=("b",)), name="late")],
            after=[(), ()],
            after_each=[None, 0],
        )
    )
    answer = driver.answers[-1]
    assert (answer.error, answer.hint) == ("usage", "--after waits for the whole job")
    assert answer.message == (
        "tasks of late cannot wait one for one: "
        "there is no job is a service: its tasks never end by themselves"
    )


def test_the_parent_that_is_missing_is_said_to_be_missing(driver: PoolDriver) -> None:
    driver.submit(2, after_each=77)
    answer = driver.answers[-1]
    assert (answer.error, answer.message) == ("not-found", "there is no job 77")
