"""The experiment with a flock, on a few tasks of two real pools."""

from __future__ import annotations

import pytest

from kestrel_experiments.flock.result import FlockRun, Mode
from kestrel_experiments.flock.run import Experiment, ExperimentPlan
from kestrel_experiments.flock.source import POOLS

UNLOADED, LOADED = POOLS[0], POOLS[-1]


async def one(mode: Mode, **changes: object) -> FlockRun:
    """A run with the first tasks of two pools."""
    plan = ExperimentPlan(
        modes=(mode,),
        pools=(UNLOADED, LOADED),
        most_tasks=30,
        unit_seconds=0.04,
        **changes,  # type: ignore[arg-type]
    )
    experiment = Experiment(plan)
    await experiment.run()
    (run,) = experiment.runs
    assert run.audit.breaches == []
    assert (run.audit.tasks, run.audit.lost, run.audit.twice) == (60, 0, 0)
    return run


@pytest.mark.parametrize("mode", ["with", "static"])
async def test_a_loaded_pool_borrows_and_every_task_ends_once(mode: Mode) -> None:
    run = await one(mode)
    assert run.lent[LOADED.name][UNLOADED.name] > 0
    assert run.starts.after_idle or run.starts.after_submission


async def test_pools_alone_run_all_at_home() -> None:
    run = await one("without")
    assert run.lent == {}
    assert [waits.tasks for waits in run.waits] == [30, 30, 60]


async def test_nothing_is_lost_when_a_manager_and_a_server_are_killed() -> None:
    run = await one("with", kill=True, delays_ms=(5.0,))
    assert [fault.partition(" killed")[0] for fault in run.faults] == [
        "the manager of pool D",
        "the server of pool A",
    ]
