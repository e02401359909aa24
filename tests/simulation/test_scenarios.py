"""One kind of trouble at a time: what it may cost, and what it must not."""

from __future__ import annotations

from random import Random

import pytest
from seeds import due

import kestrel_worlds
from kestrel_worlds import WorldReport, faults
from kestrel_worlds.faults import Kind
from kestrel_worlds.nodes import Nodes
from kestrel_worlds.workload import Submission
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd

TASKS = 40
SEEDS = due(10, parts=2)


def live_through(
    seed: int, *kinds: Kind, kind: str = "long", max_losses: int = 5, cpus: float = 2
) -> WorldReport:
    """Six workers run forty tasks while eight faults of these kinds happen."""
    spec = JobSpec(program=Program(argv=("task",)), name=kind, count=TASKS, max_losses=max_losses)
    report = kestrel_worlds.run(
        seed,
        kestrel_worlds.WorldSettings(
            ads=[WorkerAd(assets={"cpus": cpus})] * 6,
            submissions=[Submission(at_seconds=0.0, spec=spec)],
            faults=8 if kinds else 0,
            fault_kinds=dict.fromkeys(kinds, 1.0),
            fault_seconds=30.0,
        ),
    )
    report.raise_problems()
    return report


@pytest.mark.parametrize("seed", SEEDS)
def test_without_trouble_every_task_runs_once(seed: int) -> None:
    report = live_through(seed)
    assert (report.counts.done, report.executions) == (TASKS, TASKS)


@pytest.mark.parametrize(
    "kind",
    [
        faults.crash_manager,
        faults.restart_manager,
        faults.hang_manager,
        faults.drop_manager,
        faults.restart_server,
        faults.slow_commits,
        faults.fill_store,
        faults.repeat_reports,
        faults.drain,
        faults.leave,
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_trouble_around_the_workers_repeats_nothing(kind: Kind, seed: int) -> None:
    report = live_through(seed, kind)
    # A user who is not answered hands the job in again, which makes it another job.
    assert report.counts.done == report.executions == TASKS * report.jobs


@pytest.mark.parametrize("seed", SEEDS)
def test_a_store_that_fills_while_all_else_breaks_loses_nothing(seed: int) -> None:
    kinds = (faults.fill_store, faults.crash_manager, faults.drop_worker, faults.slow_commits)
    report = live_through(seed, *kinds, max_losses=9)
    assert report.counts.done == TASKS * report.jobs


@pytest.mark.parametrize("seed", SEEDS)
def test_broken_connections_lose_nothing_however_often_they_break(seed: int) -> None:
    assert live_through(seed, faults.drop_worker, max_losses=4).counts.done == TASKS


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_that_are_set_by_days_cost_nothing(seed: int) -> None:
    report = live_through(seed, faults.set_clock, max_losses=1)
    assert report.counts.done == report.executions == TASKS


@pytest.mark.parametrize("seed", SEEDS)
def test_clocks_that_are_set_while_all_else_breaks_lose_nothing(seed: int) -> None:
    kinds = (faults.set_clock, faults.crash_manager, faults.drop_worker, faults.hang_worker)
    report = live_through(seed, *kinds, max_losses=9)
    assert report.counts.done == TASKS * report.jobs


@pytest.mark.parametrize("seed", SEEDS)
def test_tasks_of_killed_workers_run_elsewhere(seed: int) -> None:
    report = live_through(seed, faults.crash_worker, max_losses=9)
    assert report.counts.done == TASKS
    assert report.executions > TASKS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_task_that_ends_its_worker_is_given_up(seed: int) -> None:
    report = live_through(seed, kind="killer", max_losses=2, cpus=1)
    assert (report.counts.done, report.counts.lost) == (35, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_begins_to_go_wrong_once_there_is_peace(seed: int) -> None:
    def note(nodes: Nodes, random: Random, seconds: float) -> None:
        nodes.clock.tell("fault", "begins")

    report = kestrel_worlds.run(
        seed,
        kestrel_worlds.WorldSettings(
            ads=[WorkerAd()],
            submissions=[],
            faults=32,
            fault_kinds={note: 1.0},
            fault_seconds=5.0,
        ),
    )
    report.raise_problems()
    parts = [line.split(maxsplit=2)[2] for line in report.story]
    peace = parts.index("has peace")
    assert parts[:peace].count("begins") == 32


def test_the_world_waits_for_its_users_second_thoughts() -> None:
    """Of five tasks one always fails: retried long after its end, it fails once more."""
    spec = JobSpec(program=Program(argv=("task",)), name="poison", count=5)
    report = kestrel_worlds.run(
        1,
        kestrel_worlds.WorldSettings(
            ads=[WorkerAd()],
            submissions=[Submission(at_seconds=0.0, spec=spec, retry_after_seconds=20.0)],
        ),
    )
    report.raise_problems()
    assert (report.counts.failed, report.executions) == (1, 6)


def test_what_is_retried_may_run_before_a_slow_disk_has_heard_of_it() -> None:
    spec = JobSpec(program=Program(argv=("task",)), name="long", count=4)
    asked = Submission(
        at_seconds=0.0, spec=spec, cancel_after_seconds=1.0, retry_after_seconds=30.0
    )
    report = kestrel_worlds.run(
        1,
        kestrel_worlds.WorldSettings(
            ads=[WorkerAd(assets={"cpus": 4.0})], submissions=[asked], commit_seconds=(8.0, 8.0)
        ),
    )
    report.raise_problems()
    assert report.counts.done == 4 * report.jobs  # asked again by a user who was not answered
