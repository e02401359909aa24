"""The same experiment on simulated time, with the manager, workers and decisions of production."""

from __future__ import annotations

from kestrel_experiments.flock.record import PoolRecords, TracedTask
from kestrel_experiments.imbalance.class_load import (
    ImbalancePlan,
    Sharing,
    class_load,
    environment_classes,
)
from kestrel_experiments.imbalance.imbalance_world import ImbalanceWorld, ImbalanceWorldPlan
from kestrel_experiments.imbalance.result import ImbalanceRun, run_of

_POOL = "simulated"


def simulated_run(
    plan: ImbalancePlan, sharing: Sharing, seed: int, start_seconds: tuple[float, float]
) -> ImbalanceRun:
    """Simulates a pool to the end of its load.

    Args:
        start_seconds: limits of the time that an environment takes until its worker connects.

    Raises:
        KestrelError: it was done sooner than is possible.
    """
    tasks = class_load(plan, seed)
    world = ImbalanceWorld(
        seed,
        ImbalanceWorldPlan(
            hosts=plan.hosts,
            classes=environment_classes(plan, sharing),
            tasks=tasks,
            start_seconds=start_seconds,
        ),
    )
    world.run_to_the_end()
    keys = [str(number) for number in range(len(tasks))]
    return run_of(
        plan,
        sharing,
        seed,
        tasks,
        keys,
        world.began_at,
        records(world),
        world.watch.spans.values(),
        expected={key: task.seconds for key, task in zip(keys, tasks, strict=True)},
        problems=world.audit.problems,
    )


def records(world: ImbalanceWorld) -> PoolRecords:
    """Reads the records of a world's pool from its store."""
    store = world.store
    found = []
    for job in sorted(store.jobs(limit=len(world.plan.tasks) + 1), key=lambda job: job.job_id):
        for row in store.tasks(job.job_id):
            result = row.result
            found.append(
                TracedTask(
                    key=job.spec.name,
                    job_id=job.job_id,
                    submitted_at=job.submitted_at,
                    state=row.state,
                    accepted=job.counts.done,
                    attempts=1 + row.failures + row.losses,
                    exit_code=result.exit_code if result is not None else None,
                    worker=row.worker,
                    started_at=result.started_at if result is not None else 0.0,
                    wall_seconds=result.wall_seconds if result is not None else 0.0,
                )
            )
    return PoolRecords(
        pool=_POOL, domain=_POOL, tasks=found, accepted_results=world.audit.accepted_results
    )
