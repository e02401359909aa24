"""Hosts for three classes of work: each task runs once, and environments take nobody's room."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from seeds import due

from kestrel_experiments.imbalance.class_load import (
    SHARINGS,
    ClassTask,
    ImbalancePlan,
    Sharing,
    class_load,
    environment_classes,
    tag_of,
)
from kestrel_experiments.imbalance.imbalance_world import (
    BEFORE_SECONDS,
    ImbalanceWorld,
    ImbalanceWorldPlan,
)
from kestrel_experiments.imbalance.result import ImbalanceRun
from kestrel_experiments.imbalance.simulation import simulated_run
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.core.environments.making_room import PATIENCE_SECONDS

PLAN = ImbalancePlan(hosts=6, tasks=100, mean_seconds=4.0)
START_SECONDS = (0.3, 0.6)


def world_of(seed: int, plan: ImbalanceWorldPlan) -> ImbalanceWorld:
    world = ImbalanceWorld(seed, plan)
    world.run_to_the_end()
    assert not world.audit.problems
    return world


def simulated(sharing: Sharing, seed: int) -> ImbalanceRun:
    run = simulated_run(PLAN, sharing, seed, START_SECONDS)
    assert not run.wrong
    return run


@pytest.mark.parametrize("sharing", SHARINGS)
@pytest.mark.parametrize("seed", due(2, parts=2))
def test_every_task_runs_once_in_an_environment_of_its_class(seed: int, sharing: Sharing) -> None:
    tasks = class_load(PLAN, seed)
    world = world_of(
        seed,
        ImbalanceWorldPlan(
            hosts=PLAN.hosts, classes=environment_classes(PLAN, sharing), tasks=tasks, check=True
        ),
    )
    jobs = {job.job_id: job for job in world.store.jobs(limit=1_000)}
    ran = [(int(jobs[one.job_id].spec.name), one) for one in world.audit.executions.values()]
    assert sorted(number for number, _ in ran) == list(range(len(tasks)))
    for number, one in ran:
        assert one.worker.startswith(f"env-{tasks[number].of}-")


@pytest.mark.parametrize("seed", due(3, parts=3))
def test_environments_leave_room_for_what_the_hosts_themselves_run(seed: int) -> None:
    """Tasks of no class run on the hosts, which make environments all the time meanwhile."""
    plan = ImbalancePlan(hosts=8, tasks=60, mean_seconds=2.0, idle_seconds=1.0)
    tasks = class_load(plan, seed)
    own = [ClassTask(0.3 * number, 1.5, "") for number in range(60)]
    world = world_of(
        seed,
        ImbalanceWorldPlan(
            hosts=4,
            host_cpus=2.0,
            classes=environment_classes(plan, "on-demand"),
            tasks=sorted([*tasks, *own]),
            check=True,
        ),
    )
    on_hosts = [one for one in world.audit.executions.values() if one.worker.startswith("w")]
    assert len(on_hosts) > len(own) / 2, "an environment that is idle runs some, too"
    assert len(world.watch.spans) > 4
    assert len(world.audit.executions) == len(tasks) + len(own)


@pytest.mark.parametrize("seed", due(2, parts=2))
def test_on_demand_is_done_in_less_than_six_tenths_of_the_time(seed: int) -> None:
    static = simulated("static", seed)
    assert static.started == 0
    for sharing in ("on-demand", "kept"):
        run = simulated(sharing, seed)
        assert run.makespan_seconds < 0.6 * static.makespan_seconds
        assert run.utilisation > static.utilisation
        assert run.started > 0


@pytest.mark.parametrize("seed", due(3, parts=3))
def test_no_class_waits_for_ever_while_another_always_has_work(seed: int) -> None:
    """Two classes and two hosts; environments stay for minutes, and all the work is there."""
    classes = [
        EnvironmentClass(
            name=name, kind="venv", tags=(tag_of(name),), resources=EnvironmentResources(cpus=1.0),
            maximum=2,
        )
        for name in "ab"
    ]  # fmt: skip
    tasks = [ClassTask(0.0, 2.0, "a")] * 100 + [ClassTask(1.0, 2.0, "b")] * 5
    world = world_of(seed, ImbalanceWorldPlan(hosts=2, classes=classes, tasks=tasks, check=True))
    jobs = {job.job_id: job for job in world.store.jobs(limit=1_000)}
    ran = {int(jobs[one.job_id].spec.name): one for one in world.audit.executions.values()}
    assert len(ran) == len(tasks)
    first = min(one.began_at for number, one in ran.items() if number >= 100)
    assert first - world.began_at < 1.0 + PATIENCE_SECONDS + 5.0
    assert len(world.watch.spans) < 6, "nor does the pool swing"


@pytest.mark.parametrize("seed", due(2, parts=2))
def test_one_environment_of_each_class_keeps_small_classes_from_waiting_long(seed: int) -> None:
    """While a class has work its environments are never idle: others wait for their hosts."""
    on_demand, kept = simulated("on-demand", seed), simulated("kept", seed)
    for of in ("b", "c"):
        assert kept.waits_of(of).most <= on_demand.waits_of(of).most


def test_what_is_there_always_is_there_before_the_load_begins() -> None:
    plan = ImbalancePlan(hosts=7, tasks=1, mean_seconds=1.0)
    world = world_of(
        1,
        ImbalanceWorldPlan(
            hosts=7, classes=environment_classes(plan, "static"), tasks=[ClassTask(0.0, 1.0, "a")]
        ),
    )
    assert sorted(span.of for span in world.watch.spans.values()) == list("aaabbcc")


def test_an_environment_that_takes_too_long_is_given_up_and_its_work_waits() -> None:
    """Then the next start there waits; what takes as long as is allowed is there in the end."""
    cls = EnvironmentClass(
        name="a", kind="venv", tags=(tag_of("a"),), resources=EnvironmentResources(cpus=1.0),
        start_seconds=2.0, idle_seconds=2.0,
    )  # fmt: skip
    world = world_of(
        3,
        ImbalanceWorldPlan(
            hosts=1, classes=[cls], tasks=[ClassTask(0.0, 1.0, "a")], start_seconds=(1.5, 4.0)
        ),
    )
    spans = list(world.watch.spans.values())
    assert len(world.audit.executions) == 1
    assert all(span.gone_at is not None for span in spans if span.ready_at is None)


def test_the_same_seed_gives_the_same_run() -> None:
    assert simulated("on-demand", 5) == simulated("on-demand", 5)
    assert simulated("on-demand", 5) != simulated("on-demand", 6)


@pytest.mark.parametrize("seed", due(4, parts=2))
def test_a_manager_that_is_killed_learns_what_there_is_and_starts_none_twice(seed: int) -> None:
    world = with_one_killed(seed, lambda world: world.nodes.manager)
    assert len(world.audit.executions) == PLAN.tasks
    ready = [span for span in world.watch.spans.values() if span.ready_at is not None]
    assert len(ready) == len(world.watch.spans), "each order led to one environment"


@pytest.mark.parametrize("seed", due(4, parts=2))
def test_a_host_that_is_killed_leaves_no_environment_behind(seed: int) -> None:
    """Its next worker ends what there is before it takes anything, so there is room for all."""
    world = with_one_killed(seed, lambda world: world.nodes.workers[0])
    assert world.audit.accepted_results == PLAN.tasks
    there = [process.name for process in world.nodes.workers if process.name.startswith("env-")]
    assert len(there) <= PLAN.hosts


def with_one_killed(
    seed: int, choose: Callable[[ImbalanceWorld], SimulatedProcess]
) -> ImbalanceWorld:
    """A world in which a process is killed in the middle of the load, and comes back."""
    classes = environment_classes(PLAN, "kept")
    tasks = class_load(PLAN, seed)
    world = ImbalanceWorld(
        seed, ImbalanceWorldPlan(hosts=PLAN.hosts, classes=classes, tasks=tasks, check=True)
    )
    process = choose(world)

    def kill() -> None:
        process.kill()
        process.start_again(2.0)

    world.clock.after(BEFORE_SECONDS + 10.0 + 3.0 * seed, kill)
    world.run_to_the_end()
    assert not world.audit.problems
    assert process.life == 2
    return world
