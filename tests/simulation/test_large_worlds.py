"""Pools of ordinary size."""

from __future__ import annotations

import pytest
from seeds import due

import kestrel_worlds
from kestrel_worlds.workload import Submission
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import WorkerAd


@pytest.mark.parametrize("seed", due(4, parts=2))
def test_200_workers_and_5000_tasks_on_a_bad_day(seed: int) -> None:
    report = kestrel_worlds.run(seed, kestrel_worlds.large(seed))
    report.raise_problems()
    # A user whose answer was lost asks again, and that is a job of its own.
    assert report.counts.total() == 1000 * report.jobs >= 5000


@pytest.mark.parametrize(("kind", "mean_seconds"), [("medium", 0.5), ("long", 13.25)])
def test_a_quiet_pool_wastes_hardly_any_time(kind: str, mean_seconds: float) -> None:
    workers, tasks = 100, 4000
    report = kestrel_worlds.run(
        1,
        kestrel_worlds.WorldSettings(
            ads=[WorkerAd()] * workers,
            submissions=[
                Submission(
                    at_seconds=0.5,
                    spec=JobSpec(program=Program(argv=("t",)), name=kind, count=tasks),
                )
            ],
            check=False,
            keep_story=False,
        ),
    )
    report.raise_problems()
    assert (report.counts.done, report.executions) == (tasks, tasks)
    bound_seconds = tasks * mean_seconds / workers
    assert bound_seconds / (report.busy_seconds - 0.5) > 0.9


def test_one_slow_task_does_not_hold_up_the_tasks_behind_it() -> None:
    """Nine in ten tasks take milliseconds and are sent ahead; each tenth takes seconds."""
    report = kestrel_worlds.run(
        2,
        kestrel_worlds.WorldSettings(
            ads=[WorkerAd()] * 20,
            submissions=[
                Submission(
                    at_seconds=0.5,
                    spec=JobSpec(program=Program(argv=("t",)), name="mixed", count=2000),
                )
            ],
            check=False,
            keep_story=False,
        ),
    )
    report.raise_problems()
    bound_seconds = 2000 * 0.1 * 3.0 / 20
    assert report.busy_seconds < 1.5 * bound_seconds
