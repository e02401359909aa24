"""Measures every task length on every number of workers, each cell for about the same time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kestrelctl.bench.bounds import Sleep, parse_sleep
from kestrelctl.bench.collected_runs import CollectedRuns
from kestrelctl.bench.pool_size import PoolSize
from kestrelctl.bench.run import (
    BenchPlan,
    OnProgress,
    check,
    measure_bare_rate,
    measured_pool,
    one_run,
    workers_of,
)
from kestrelctl.errors import UsageError
from kestrelctl.xmpp.user import UserConnection

WORKERS = (10, 100, 917)
SLEEPS = ("0", "0.01", "0.1", "1", "10")
CELL_SECONDS = 20.0
#: The rate that sizes the first run on a given pool, whose machines have an unknown rate.
UNKNOWN_RATE_PER_SECOND = 500.0


async def sweep(
    plan: BenchPlan,
    collected: CollectedRuns,
    workers: Sequence[int] = WORKERS,
    cell_seconds: float = CELL_SECONDS,
    pool: UserConnection | None = None,
    progress: OnProgress | None = None,
) -> None:
    """Measures a throw-away pool of each size, or the given one with the workers that it has.

    Args:
        plan: `jobs` is the most tasks of a cell, `workers` does not count, the rest as always.
        collected: takes the runs.
        cell_seconds: the time of a cell if nothing is in the way (`tasks_of_cell`).

    Raises:
        UsageError: the plan makes no sense.
        KestrelError: a run failed, lost tasks, or was faster than its bound allows.
    """
    if any(":" in spec for spec in plan.sleeps):
        raise UsageError(
            "a sweep runs every sleep time on every number of workers",
            hint="give the numbers of workers with --workers, or leave out --sweep",
        )
    sleeps = sorted({parse_sleep(spec) for spec in plan.sleeps}, key=lambda s: (s.mean, s.longest))
    if cell_seconds <= 0 or not workers:
        raise UsageError("a sweep needs some workers, and some time for each cell")
    check(plan)
    if min(workers) < 1:
        raise UsageError("a sweep needs at least one worker")
    sizes = [PoolSize(count) for count in sorted(set(workers))]
    if pool is not None:
        del sizes[1:]
    collected.cell_seconds = cell_seconds
    collected.planned_runs = len(sizes) * len(sleeps)
    await measure_bare_rate(collected, pool)
    for size in sizes:
        await _row(plan, size, sleeps, cell_seconds, collected, pool, progress)


def tasks_of_cell(
    sleep: Sleep, workers: int, cell_seconds: float, rate_per_second: float, most: int
) -> int:
    """Returns the number of tasks of one cell: as many as can be done in its time, in whole waves.

    Workers that are kept busy do W/t tasks a second, and dispatch hands out `rate_per_second`; the
    smaller one counts. The number is a multiple of the workers, so that none idles at the end for
    arithmetic's sake, and at least one task each: tasks longer than the cell stretch it to
    one length. It is never above `most`.
    """
    rate = min(rate_per_second, workers / sleep.mean) if sleep.mean else rate_per_second
    waves = max(1, int(cell_seconds * rate / workers))
    if waves * workers > most:
        waves = most // workers
    return waves * workers or most


async def _row(
    plan: BenchPlan,
    size: PoolSize,
    sleeps: Sequence[Sleep],
    cell_seconds: float,
    collected: CollectedRuns,
    pool: UserConnection | None,
    progress: OnProgress | None,
) -> None:
    """Measures all task lengths on one number of workers; the shortest first, it shows the rate."""
    rate = collected.spawn_limit_per_second or UNKNOWN_RATE_PER_SECOND
    async with measured_pool(plan, size, pool) as (connection, local):
        _, workers = await workers_of(connection)

        for sleep in sleeps:
            tasks = tasks_of_cell(sleep, workers, cell_seconds, rate, plan.jobs)
            cell = msgspec.structs.replace(plan, jobs=tasks)
            run = await one_run(cell, sleep, connection, local, progress)
            if sleep.mean == 0:
                rate = run.tasks_per_second
            collected.add(run)
            await measure_bare_rate(collected, pool)
            collected.tell()
