"""A plan: what it decides, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from poolkit import PoolDriver
from stepcount import steps

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.gates import passing, takeable
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.scheduling.plan import Plan, plan


def plan_of(driver: PoolDriver) -> Plan:
    state = driver.pool.state
    return plan(state.demand, state.supply, state.config, driver.now)


def waiting_pool(workers: Sequence[float], jobs: Sequence[tuple[int, float, int]]) -> PoolDriver:
    """A pool in which everything waits to be planned.

    Args:
        workers: their processors.
        jobs: how many tasks, with how many processors each, at which priority.
    """
    driver = PoolDriver()
    driver.hold_back()
    for n, cpus in enumerate(workers):
        driver.join(f"w{n}", cpus=cpus)
    for count, cpus, priority in jobs:
        driver.submit(count, cpus=cpus, priority=priority)
    return driver


def everything(driver: PoolDriver) -> list[object]:
    """All that a plan could have changed."""
    state = driver.pool.state
    return [
        *(
            (
                w.jid,
                dict(w.free),
                list(w.held),
                list(w.backlog or ()),
                w.running,
                dict(w.running_of),
            )
            for w in state.workers.values()
        ),
        *((job.id, job.cursor, list(job.ready), job.running) for job in state.jobs.values()),
        *((turn.order, turn.shapes, dict(turn.lines)) for turn in state.demand.turns()),
        *((list(cls.hungry), list(cls.parked)) for cls in state.supply.classes()),
        state.next_number,
    ]


def given_to(found: Plan) -> dict[str, list[tuple[int, int]]]:
    """Worker -> (job id, tasks)."""
    return {
        worker.jid: [(a.job.id, a.tasks) for a in assignments]
        for worker, assignments in found.assignments.items()
    }


cpus_of_workers = st.lists(st.sampled_from([0.5, 1.0, 2.0, 8.0]), max_size=6)
some_jobs = st.lists(
    st.tuples(
        st.integers(1, 20), st.sampled_from([0.25, 1.0, 1.5, 4.0]), st.sampled_from([50, 100, 200])
    ),
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(workers=cpus_of_workers, jobs=some_jobs)
def test_a_plan_changes_nothing_and_gives_nobody_too_much(
    workers: list[float], jobs: list[tuple[int, float, int]]
) -> None:
    driver = waiting_pool(workers, jobs)
    before = everything(driver)
    found, again = plan_of(driver), plan_of(driver)
    assert everything(driver) == before
    assert given_to(found) == given_to(again), "a plan looked at is a plan that could be made again"
    taken: dict[int, int] = {}
    for worker, assignments in found.assignments.items():
        used = sum(a.tasks * a.claim.amounts["cpus"] for a in assignments)
        assert used <= worker.free["cpus"]
        for assignment in assignments:
            taken[assignment.job.id] = taken.get(assignment.job.id, 0) + assignment.tasks
    left = {job.id: takeable(job) - taken.get(job.id, 0) for job in driver.pool.jobs}
    assert min(left.values(), default=0) >= 0


@pytest.mark.parametrize("urgent_first", [True, False])
def test_the_more_urgent_job_goes_first_whatever_it_asks_for(urgent_first: bool) -> None:
    """Two shapes that one worker can run: the order is that of the jobs, not of the shapes."""
    jobs = [(1, 1.0, 200), (1, 0.5, 100)]
    driver = waiting_pool([1.0], jobs if urgent_first else jobs[::-1])
    urgent = max(driver.pool.jobs, key=lambda job: job.spec.priority)
    assert given_to(plan_of(driver)) == {"w0": [(urgent.id, 1)]}


@pytest.mark.parametrize("shapes", [(1.0, 0.5), (0.5, 1.0)])
def test_among_equals_the_job_that_came_first_goes_first(shapes: tuple[float, float]) -> None:
    driver = waiting_pool([1.0], [(1, shapes[0], 100), (1, shapes[1], 100)])
    [first, *_] = given_to(plan_of(driver))["w0"]
    assert first == (1, 1)


def test_nobody_is_filled_before_the_others_have_something() -> None:
    driver = waiting_pool([8.0, 8.0, 8.0, 8.0], [(8, 1.0, 100)])
    assert {tasks for [(_, tasks)] in given_to(plan_of(driver)).values()} == {2}


def test_what_a_plan_costs_does_not_depend_on_how_many_idle_when_little_waits() -> None:
    few, many = (waiting_pool([1.0] * idle, [(1, 1.0, 100)]) for idle in (10, 100))
    assert steps(lambda: plan_of(few)) == steps(lambda: plan_of(many))


def test_consecutive_tasks_of_a_job_travel_as_one_span() -> None:
    driver = waiting_pool([8.0], [(8, 1.0, 100)])
    driver.let_go()
    (run,) = driver.of(fx.Run)
    assert [span[1:] for span in run.spans] == [(1, 0, 8, 0)]
    assert run.claims == [{"cpus": 1000}]


def test_each_span_names_the_claim_of_its_shape() -> None:
    driver = waiting_pool([2.0], [(1, 1.5, 200), (1, 0.5, 100)])
    driver.let_go()
    (run,) = driver.of(fx.Run)
    charged = {job_id: run.claims[claim] for _, job_id, _, _, claim in run.spans}
    assert charged == {1: {"cpus": 1500}, 2: {"cpus": 500}}


def test_of_many_small_jobs_a_worker_gets_one_whole_and_not_a_task_of_each() -> None:
    driver = waiting_pool([1.0] * 4, [(20, 1.0, 100)] * 40)
    for job in driver.pool.jobs:
        job.learn(0.001, 1)
        driver.pool.state.touch_job(job)
    driver.tell(ev.Tick(at=driver.now))
    shares = given_to(plan_of(driver))
    assert len(shares) == 4
    assert all(max(tasks for _, tasks in of_worker) == 20 for of_worker in shares.values())


def test_the_last_tasks_of_all_are_spread() -> None:
    driver = waiting_pool([1.0] * 4, [(1, 1.0, 100)] * 60)
    for job in driver.pool.jobs:
        job.learn(0.001, 1)
        driver.pool.state.touch_job(job)
    driver.tell(ev.Tick(at=driver.now))
    shares = given_to(plan_of(driver))
    amounts = [sum(tasks for _, tasks in of_worker) for of_worker in shares.values()]
    assert len(set(amounts)) == 1
    assert sum(amounts) <= 30, "the rest is for whoever is done first"


# -- order and gates -------------------------------------------------------------------------------


def test_every_gate_holds_tasks_back_and_says_why() -> None:
    driver = waiting_pool([], [(9, 1.0, 100)])
    [job] = driver.pool.jobs
    assert passing(job) == (9, None)
    job.stored = False
    assert passing(job) == (0, Reason.NOT_STORED)
    job.stored = True
    job.hold = Hold("ada", 5.0)
    assert passing(job) == (0, Reason.HELD)
    job.hold = None
    capped = driver.pool.state.jobs[driver.submit(9, max_running=2)]
    assert passing(capped) == (2, "max-running")
    capped.recovering = True
    assert passing(capped) == (0, Reason.RECOVERING)
    capped.recovering = False
    members = driver.pool.state.jobs[driver.submit(3, span=3)]
    assert passing(members) == (3, None)
    members.cursor = 1
    assert passing(members) == (0, Reason.TOGETHER)
    members.cursor = 0
    capped.cancelling = True
    assert takeable(capped) == 0
    capped.cancelling = False
    child = driver.pool.state.jobs[driver.submit(after=(After(job.id, job.id),))]
    assert passing(child) == (0, Reason.PARENTS)
    storing = driver.pool.state.jobs[driver.submit(outputs=("*",))]
    storing.sharer.stored.limit_bytes = 0
    assert passing(storing) == (0, Reason.MAX_STORED)


# -- the order of classes --------------------------------------------------------------------------


def test_a_class_that_few_waiting_shapes_can_use_is_filled_first() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("g1", "g2", tags=["gpu"])
    driver.join("w1", "w2", "w3")
    driver.submit(3)
    driver.submit(2, requires=("gpu",))
    driver.let_go()
    assert {name: driver.jobs_at(name) for name in driver.pool.workers} == {
        "g1": [2],
        "g2": [2],
        "w1": [1],
        "w2": [1],
        "w3": [1],
    }


def test_workers_that_are_alike_in_what_waits_are_filled_in_rounds() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("g1", cpus=2, tags=["gpu"])
    driver.join("w1", cpus=2)
    driver.submit(2)
    driver.let_go()
    assert {name: driver.jobs_at(name) for name in driver.pool.workers} == {"g1": [1], "w1": [1]}


def test_the_order_of_classes_is_found_again_when_other_shapes_wait() -> None:
    driver = PoolDriver()
    driver.hold_back()
    driver.join("g1", tags=["gpu", "x"])
    driver.join("w1", tags=["y", "z"])
    driver.submit(1, requires=("y",))
    driver.submit(1, requires=("z",))
    plan_of(driver)
    for tag in ("gpu", "x"):
        driver.submit(1, requires=(tag,))
    driver.submit(1, priority=200)
    driver.submit(1, requires=("gpu", "x"))
    found = plan_of(driver)
    assert next(iter(found.assignments)).jid == "w1"
