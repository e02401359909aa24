"""A job that waits for others starts when these have ended as it wants, and never before."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.after import After, IfParentFails, WantedEnd
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome, Result

OK, ENDED, FAILED = WantedEnd.OK, WantedEnd.ENDED, WantedEnd.FAILED


def after(*jobs: int, ending: WantedEnd = OK) -> tuple[After, ...]:
    return tuple(After(job, job, ending) for job in jobs)


def jobs_at(driver: PoolDriver, name: str = "w") -> list[int]:
    return sorted(set(driver.jobs_at(name)))


def end(driver: PoolDriver, job_id: int, *, well: bool = True, name: str = "w") -> None:
    """All that runs of a job ends."""
    held = [attempt for attempt in driver.held(name) if attempt[1] == job_id]
    if well:
        driver.report(name, *held)
    else:
        driver.fail(name, *held)


def state_of(driver: PoolDriver, job_id: int) -> str:
    [record] = driver.store().jobs(ids=[job_id])
    return record.state


@pytest.fixture
def driver() -> PoolDriver:
    found = PoolDriver()
    found.join("w", cpus=4)
    return found


def test_a_child_starts_when_its_parent_is_done(driver: PoolDriver) -> None:
    parent = driver.submit(2)
    child = driver.submit(after=after(parent))
    driver.wait(1)
    assert jobs_at(driver) == [parent]
    driver.report("w", driver.held("w")[0])
    driver.wait(1)
    assert jobs_at(driver) == [parent]
    end(driver, parent)
    driver.wait(1)
    assert jobs_at(driver) == [child]


def test_it_starts_after_the_end_of_its_parent_is_durable_and_not_before(
    driver: PoolDriver,
) -> None:
    parent = driver.submit()
    child = driver.submit(after=after(parent))
    driver.wait(1)
    [(number, job_id, index)] = driver.held("w")
    result = Result(number, job_id, index, Outcome.DONE, driver.now, 1.0)
    reported = ev.Reported(at=driver.now, worker="w", results=[result], seals=[])
    ended = [*driver.pool.handle(reported), *driver.pool.schedule(driver.now)]
    [closed] = [each for each in ended if isinstance(each, fx.Feed)]
    assert jobs_at(driver) == []
    driver.tell(closed.event)
    assert jobs_at(driver) == [child]


@pytest.mark.parametrize(
    ("ending", "well", "starts"),
    [
        (OK, True, True),
        (OK, False, False),
        (ENDED, True, True),
        (ENDED, False, True),
        (FAILED, True, False),
        (FAILED, False, True),
    ],
)
def test_the_parent_must_end_as_the_child_wants(
    driver: PoolDriver, ending: WantedEnd, well: bool, starts: bool
) -> None:
    parent = driver.submit()
    child = driver.submit(after=after(parent, ending=ending))
    driver.wait(1)
    end(driver, parent, well=well)
    driver.wait(1)
    assert jobs_at(driver) == ([child] if starts else [])
    if not starts:
        assert state_of(driver, child) == "cancelled"


def test_of_several_parents_all_must_have_ended(driver: PoolDriver) -> None:
    first, second = driver.submit(), driver.submit()
    child = driver.submit(after=after(first, second))
    driver.wait(1)
    end(driver, second)
    driver.wait(1)
    assert jobs_at(driver) == [first]
    end(driver, first)
    driver.wait(1)
    assert jobs_at(driver) == [child]


def test_a_parent_that_has_ended_already_counts_at_once(driver: PoolDriver) -> None:
    parent = driver.submit()
    driver.wait(1)
    end(driver, parent)
    child = driver.submit(after=after(parent))
    driver.wait(1)
    assert jobs_at(driver) == [child]


def test_after_one_that_has_failed_already_it_is_cancelled_at_once(driver: PoolDriver) -> None:
    parent = driver.submit()
    driver.wait(1)
    end(driver, parent, well=False)
    child = driver.submit(after=after(parent))
    assert state_of(driver, child) == "cancelled"
    [record] = [r for r in driver.records if isinstance(r, JobRecord) and r.state == "cancelled"]
    assert (record.job_id, record.stopped_by) == (child, "parent")


def test_what_waits_behind_a_cancelled_child_is_cancelled_with_it(driver: PoolDriver) -> None:
    first = driver.submit_graph((), after(0), after(1), after(2, ending=FAILED), after(2))
    driver.wait(1)
    end(driver, first, well=False)
    driver.wait(1)
    assert [state_of(driver, first + n) for n in (1, 2, 4)] == ["cancelled"] * 3
    assert jobs_at(driver) == [first + 3]


def test_a_chain_is_cancelled_in_one_commit(driver: PoolDriver) -> None:
    first = driver.submit_graph((), *[after(n) for n in range(30)])
    driver.wait(1)
    [(number, job_id, index)] = driver.held("w")
    result = Result(number, job_id, index, Outcome.FAILED, driver.now, 1.0)
    seals = driver.seals("w", [(number, job_id, index)])
    reported = ev.Reported(at=driver.now, worker="w", results=[result], seals=seals)
    [closed] = [each for each in driver.pool.handle(reported) if isinstance(each, fx.Feed)]
    effects = driver.pool.handle(closed.event)
    cancelled = {
        record.job_id
        for effect in effects
        if isinstance(effect, fx.Persist)
        for record in effect.records
        if isinstance(record, JobRecord) and record.state == "cancelled"
    }
    assert cancelled == set(range(first + 1, first + 31))


def test_a_child_may_go_on_waiting_until_the_parent_was_retried(driver: PoolDriver) -> None:
    parent = driver.submit()
    child = driver.submit(after=after(parent), if_parent_fails=IfParentFails.WAIT)
    driver.wait(1)
    end(driver, parent, well=False)
    driver.wait(1)
    assert jobs_at(driver) == []
    assert state_of(driver, child) == "active"
    driver.retry(parent)
    driver.wait(1)
    end(driver, parent)
    driver.wait(1)
    assert jobs_at(driver) == [child]


def test_a_child_may_run_whatever_came_of_its_parents(driver: PoolDriver) -> None:
    first, second = driver.submit(), driver.submit()
    child = driver.submit(after=after(first, second), if_parent_fails=IfParentFails.RUN)
    driver.wait(1)
    end(driver, first, well=False)
    driver.wait(1)
    assert jobs_at(driver) == [second]
    end(driver, second)
    driver.wait(1)
    assert jobs_at(driver) == [child]


def test_a_retry_of_parent_and_child_goes_on_with_both(driver: PoolDriver) -> None:
    parent = driver.submit()
    child = driver.submit(3, after=after(parent))
    driver.wait(1)
    end(driver, parent, well=False)
    driver.wait(1)
    driver.retry(parent)
    driver.retry(child)
    driver.wait(1)
    assert jobs_at(driver) == [parent]
    end(driver, parent)
    driver.wait(1)
    assert jobs_at(driver) == [child]


def test_a_child_alone_cannot_be_retried_while_its_parent_has_failed(driver: PoolDriver) -> None:
    parent = driver.submit()
    child = driver.submit(after=after(parent))
    driver.wait(1)
    end(driver, parent, well=False)
    driver.wait(1)
    answer = driver.retry(child)
    assert answer.error == "usage"
    assert f"job retry {parent}" in answer.hint


def test_a_child_that_was_freed_does_not_wait_again_for_a_parent_that_is_retried(
    driver: PoolDriver,
) -> None:
    parent = driver.submit()
    child = driver.submit(8, after=after(parent, ending=FAILED))
    driver.wait(1)
    end(driver, parent, well=False)
    driver.wait(1)
    driver.retry(parent)
    driver.restart()
    driver.join("v", cpus=4)
    driver.wait(60)
    assert child in jobs_at(driver, "v")


def test_only_jobs_of_ones_own_can_be_parents(driver: PoolDriver) -> None:
    parent = driver.submit(owner="eve")
    driver.submit(after=after(parent))
    assert (driver.answers[-1].error, driver.answers[-1].message) == (
        "not-found",
        f"there is no job {parent}",
    )
    driver.submit(after=after(77))
    assert driver.answers[-1].message == "there is no job 77"


@pytest.mark.parametrize("well", [True, False])
def test_a_restart_keeps_what_is_waited_for(driver: PoolDriver, well: bool) -> None:
    first, second = driver.submit(), driver.submit()
    child = driver.submit(after=after(first, second))
    driver.wait(1)
    end(driver, first)
    driver.restart()
    driver.join("v", cpus=4)
    driver.wait(60)
    assert jobs_at(driver, "v") == [second]
    end(driver, second, well=well, name="v")
    driver.wait(1)
    assert jobs_at(driver, "v") == ([child] if well else [])


def test_a_manager_that_is_killed_between_an_end_and_what_follows_makes_up_for_it(
    driver: PoolDriver,
) -> None:
    good, bad = driver.submit(), driver.submit()
    freed, doomed = driver.submit(after=after(good)), driver.submit(after=after(bad))
    driver.wait(1)
    end(driver, good)
    end(driver, bad, well=False)
    followed = next(
        place
        for place, record in enumerate(driver.records)
        if isinstance(record, JobRecord)
        and record.job_id in (freed, doomed)
        and place > 3
        and (record.freed or record.cancelling)
    )
    ends = [r for r in driver.records[followed:] if isinstance(r, JobRecord) and r.job_id == bad]
    driver.records = [*driver.records[:followed], *ends]
    driver.restart()
    driver.join("v", cpus=4)
    driver.wait(60)
    assert jobs_at(driver, "v") == [freed]
    assert state_of(driver, doomed) == "cancelled"


def test_a_parent_may_be_forgotten_while_others_are_waited_for(driver: PoolDriver) -> None:
    first, second = driver.submit(), driver.submit()
    child = driver.submit(after=after(first, second))
    driver.wait(1)
    end(driver, first)
    driver.tell(ev.Expire(at=driver.now, job_ids=[first]))
    driver.restart()
    driver.join("v", cpus=4)
    driver.wait(60)
    end(driver, second, name="v")
    driver.wait(1)
    assert jobs_at(driver, "v") == [child]


def test_a_graph_comes_as_one_and_runs_in_order(driver: PoolDriver) -> None:
    first = driver.submit_graph((), after(0), after(0), after(1, 2))
    driver.wait(1)
    assert jobs_at(driver) == [first]
    end(driver, first)
    driver.wait(1)
    assert jobs_at(driver) == [first + 1, first + 2]
    for job_id in (first + 1, first + 2):
        end(driver, job_id)
    driver.wait(1)
    assert jobs_at(driver) == [first + 3]


def test_of_a_graph_that_names_a_job_that_is_not_there_nothing_comes(driver: PoolDriver) -> None:
    before = driver.pool.next_job_id
    one, two = (
        JobSpec(program=Program(argv=("a",))),
        JobSpec(program=Program(argv=("b",)), after=after(before + 1)),
    )
    driver.tell(
        ev.SubmitGraph(
            at=driver.now,
            request="g",
            owner="ada",
            specs=[one, two],
            after=[(), ()],
            after_each=[None, None],
        )
    )
    assert driver.answers[-1].error == "not-found"
    assert driver.pool.next_job_id == before


def test_a_graph_that_comes_again_with_its_key_is_no_second_one(driver: PoolDriver) -> None:
    first = driver.submit_graph((), after(0), key="k")
    assert driver.submit_graph((), after(0), key="k") == first
    assert driver.pool.next_job_id == 3


def test_jobs_with_the_same_parents_share_one_count(driver: PoolDriver) -> None:
    width = 20
    layer = (After(0, width - 1),)
    driver.submit_graph(*[()] * width, *[layer] * width)
    assert driver.pool.state.dependencies.named["ada"] == width


def test_who_names_too_many_parents_is_told(
    driver: PoolDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kestrelctl.core.features.after.MOST_NAMED", 2)
    one, two, three = (driver.submit() for _ in range(3))
    driver.submit(after=after(one, two, three))
    assert driver.answers[-1].error == "usage"
    assert "would wait for 3 others, and 2 is the most" in driver.answers[-1].message


def test_why_it_waits_is_told(driver: PoolDriver) -> None:
    parent = driver.submit()
    child = driver.submit(after=after(parent), if_parent_fails=IfParentFails.WAIT)
    driver.wait(1)

    def told() -> tuple[Reason, str]:
        job = driver.pool.job(child)
        assert job is not None
        [why] = driver.pool.explain(job, driver.now).job_reasons
        return why.reason, why.found

    assert told() == (Reason.PARENTS, f"for job {parent}")
    end(driver, parent, well=False)
    assert told() == (Reason.PARENTS, f"in vain: job {parent} did not end as wanted")


def test_a_commit_that_somebody_waits_for_is_urgent(driver: PoolDriver) -> None:
    alone, parent, other = driver.submit(), driver.submit(), driver.submit()
    driver.submit(after=after(parent, other))
    driver.wait(1)
    ended: list[fx.Effect] = []
    for attempt in driver.held("w"):
        ended += driver.report("w", attempt)
    closed = {
        feed.event.job_id: feed.urgent
        for feed in ended
        if isinstance(feed, fx.Feed) and isinstance(feed.event, ev.JobClosed)
    }
    assert closed == {alone: False, parent: False, other: True}


def test_that_a_restart_has_freed_a_job_is_remembered(driver: PoolDriver) -> None:
    parent = driver.submit()
    child = driver.submit(after=after(parent), held=True)
    driver.wait(1)
    end(driver, parent)
    freed = [each for each in driver.records if isinstance(each, JobRecord) and each.freed]
    assert freed
    driver.records = [each for each in driver.records if each not in freed]
    driver.restart()
    assert any(
        isinstance(each, JobRecord) and each.job_id == child and each.freed
        for each in driver.records
    )
