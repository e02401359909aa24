"""A submission that comes again under its key is no second job."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobForgotten, JobRecord

SPEC = JobSpec(program=Program(argv=("true",)), count=3)


@pytest.fixture
def driver() -> PoolDriver:
    return PoolDriver()


def submit(
    driver: PoolDriver,
    key: str,
    *,
    spec: JobSpec = SPEC,
    owner: str = "ada",
    earlier: JobRecord | None = None,
) -> fx.Answer:
    """A submission as the manager hands it over: with what the store has under the key."""
    found = earlier or driver.store().job_of_key(owner, key)
    driver.tell(
        ev.Submit(at=driver.now, request="s", owner=owner, spec=spec, key=key, earlier=found)
    )
    return driver.answers[-1]


def jobs(driver: PoolDriver) -> list[int]:
    return [record.job_id for record in driver.store().jobs()]


def test_the_same_submission_again_is_the_same_job(driver: PoolDriver) -> None:
    first = submit(driver, "nightly")
    again = submit(driver, "nightly")
    assert (first.job_id, first.tasks, first.repeated) == (1, 3, False)
    assert (again.job_id, again.tasks, again.repeated) == (1, 3, True)
    assert jobs(driver) == [1]
    assert driver.pool.totals.jobs_submitted == 1


def test_without_a_key_each_submission_is_a_job(driver: PoolDriver) -> None:
    assert [submit(driver, "", earlier=None).job_id for _ in range(2)] == [1, 2]


def test_keys_are_each_owners_own(driver: PoolDriver) -> None:
    assert submit(driver, "nightly").job_id == 1
    other = submit(driver, "nightly", owner="bob")
    assert (other.job_id, other.repeated) == (2, False)


def test_a_second_submission_waits_for_the_first_to_be_durable(driver: PoolDriver) -> None:
    """The store does not know the job yet; the answer must not come before it does."""
    told = ev.Submit(at=driver.now, request="s", owner="ada", spec=SPEC, key="nightly")
    first = driver.pool.handle(told)
    second = driver.pool.handle(told)
    assert [type(effect) for effect in first] == [fx.Persist, fx.Feed, fx.Answer]
    [answer] = second
    assert isinstance(answer, fx.Answer)
    assert answer.after_commit
    assert (answer.job_id, answer.repeated, answer.error) == (1, True, None)


def test_another_job_under_a_used_key_is_refused(driver: PoolDriver) -> None:
    submit(driver, "nightly")
    answer = submit(driver, "nightly", spec=JobSpec(program=Program(argv=("false",)), count=3))
    assert answer.error == "usage"
    assert "'nightly' belongs to job 1" in answer.message
    assert jobs(driver) == [1]


def test_a_key_outlives_a_restart_and_the_end_of_its_job(driver: PoolDriver) -> None:
    submit(driver, "nightly")
    driver.restart()
    assert submit(driver, "nightly").job_id == 1
    driver.join("w", cpus=8)
    driver.finish_all()
    assert driver.ended == [1]
    assert submit(driver, "nightly").job_id == 1
    driver.restart()
    assert submit(driver, "nightly").job_id == 1
    assert jobs(driver) == [1]


def test_a_retried_job_keeps_its_key(driver: PoolDriver) -> None:
    submit(driver, "nightly")
    driver.cancel(1)
    driver.retry(1)
    assert submit(driver, "nightly").job_id == 1


def test_the_key_of_a_forgotten_job_is_free_again(driver: PoolDriver) -> None:
    submit(driver, "nightly")
    driver.cancel(1)
    [record] = driver.store().jobs()
    forget = ev.Forget(at=driver.now, request="f", record=record)
    effects = driver.pool.handle(forget)  # It is not durable yet: the store still has the job.
    assert isinstance(effects[0], fx.Persist)
    assert effects[0].records == [JobForgotten(1)]
    answer = submit(driver, "nightly", earlier=record)
    assert (answer.job_id, answer.repeated) == (2, False)


def test_memory_holds_only_keys_that_are_not_durable(driver: PoolDriver) -> None:
    for number in range(20):
        submit(driver, f"key {number}")
    assert driver.pool.state.keys == {}
