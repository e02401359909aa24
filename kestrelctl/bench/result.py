"""The result of a sweep, as data and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Literal, NamedTuple

import msgspec

from kestrelctl.bench import bounds, pool_size, reference
from kestrelctl.bench.machine import BenchMachine
from kestrelctl.bench.reference import REFERENCE_2009, Reference
from kestrelctl.bench.report.curves import Timeline, timeline

SCHEMA = 1
"""Of a result as JSON. It grows when a field changes its meaning, not when one is added."""

PLAIN = "plain"
"""The isolation of a pool that is made for a bench, unless it is told another."""

#: A run whose workers need at least this share of it by arithmetic is at its bound.
AT_BOUND = 0.95

PROCESS = "process"
"""The executor that starts one operating-system process per task."""


class LatencyMs(msgspec.Struct, frozen=True):
    """The time that dispatch added to a task: median and 99th percentile.

    It is the time from the hand-out of the task to its report at the manager, less the time the
    task waited at the worker behind others and the time it ran.
    """

    p50: float
    p99: float


class BenchRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row of a sweep: `jobs` tasks (the word of 2009) of one sleep time on `workers` workers.

    `workers` counts the tasks that run side by side; `sessions` are the workers themselves, if they
    run several tasks each, and `chosen` says that the bench chose their number to suit the machine.
    `bound_seconds` is N·t/W, `utilisation` the share of it in the makespan; both are 0 for sleep 0.
    CPU seconds are those spent during the run; those of the workers are summed over all of them.
    """

    sleep: str
    executor: str
    jobs: int
    workers: int
    makespan_seconds: float
    tasks_per_second: float
    bound_seconds: float
    utilisation: float
    lost: int
    duplicates: int
    dispatch_latency_ms: LatencyMs
    manager_rss_mb: float
    server_cpu_seconds: float
    manager_cpu_seconds: float
    worker_cpu_seconds: float
    reference_2009_seconds: float | None
    timeline: Timeline | None = None
    sessions: int | None = None
    chosen: bool = False

    @property
    def size(self) -> str:
        """The workers, and how many tasks each runs at a time: `917`, or `2x8`."""
        return pool_size.written(self.sessions or self.workers, self.workers)

    @property
    def is_at_bound(self) -> bool:
        """Whether its workers had next to no time to spare: equal tasks come in whole waves."""
        sleep = bounds.parse_sleep(self.sleep)
        waves = ceil(self.jobs / self.workers) * sleep.shortest
        return max(self.bound_seconds, waves) >= AT_BOUND * self.makespan_seconds

    @property
    def is_like_2009(self) -> bool:
        """Whether it had about as many workers as the run of 2009, of one processor each."""
        return self.sessions is None and reference.had_workers(self.sleep, self.workers)

    @property
    def reference(self) -> Reference | None:
        return REFERENCE_2009.get(self.sleep)

    @property
    def window_seconds(self) -> float:
        """The time to average a rate over: a fortieth of the run, in whole waves of equal tasks."""
        if self.timeline is None:
            return 0.0
        wave = bounds.parse_sleep(self.sleep).longest or self.timeline.bin_seconds
        span = len(self.timeline.running) * self.timeline.bin_seconds
        return ceil(span / 40 / wave) * wave

    @property
    def cpu_seconds(self) -> float:
        """CPU time of server, manager and workers, without the tasks; 0 for a given pool."""
        return self.server_cpu_seconds + self.manager_cpu_seconds + self.worker_cpu_seconds

    @property
    def times_faster(self) -> float | None:
        """Tasks per second over those of 2009: fair also when the number of tasks differs."""
        return self.tasks_per_second / self.reference.tasks_per_second if self.reference else None


class Limit(NamedTuple):
    """The larger bound of a run: what is scarce, and the least seconds that the run takes."""

    of: Literal["workers", "spawn"]
    seconds: float


class Knee(msgspec.Struct, frozen=True):
    """The task length below which one number of workers waits for work; see `knee`.

    Attributes:
        dispatch_per_second: measured with tasks of no length; None if there was no such run.
        knee_seconds: the shortest task with which all workers can be busy at that rate.
        half_seconds: the task length measured to keep them half busy, if any was.
    """

    workers: int
    dispatch_per_second: float | None
    knee_seconds: float | None
    half_seconds: float | None


class Sweep(msgspec.Struct, frozen=True):
    """The facts of a sweep besides its runs; the number of tasks of a run follows from the time."""

    cell_seconds: float
    knees: list[Knee]


class BenchResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """A bench: the machine, its bare process-start rate, the runs, and the command that made it.

    Attributes:
        spawn_limit_per_second: the best of the bare rates; None for a given pool, whose workers may
            be on other machines.
        spawn_rates_per_second: the bare rates before, between and after the runs.
        ended_early: what ended the bench before its last run; None if nothing did.
        sweep: the sweep, if every task length ran on every number of workers; else None.
        schema: the schema of this document; left out while it is 1.
        isolation: the isolation between the tasks of the pool that was made for it.
    """

    machine: BenchMachine
    spawn_limit_per_second: float | None
    runs: list[BenchRun]
    command: str | None = None
    sweep: Sweep | None = None
    schema: int = SCHEMA
    isolation: str = PLAIN
    spawn_rates_per_second: list[float] = []
    ended_early: str | None = None

    def limit(self, run: BenchRun) -> Limit | None:
        """Returns what bounds this run: worker time or process starts; None if nothing known does.

        A measured limit that the run itself has refuted counts only if there is no other.
        """
        workers = Limit("workers", run.bound_seconds)
        limit = workers
        if run.executor == PROCESS and self.spawn_limit_per_second:
            seconds = bounds.spawn_bound(run.jobs, self.spawn_limit_per_second)
            spawn = Limit("spawn", seconds)
            if not (workers.seconds and is_beyond(spawn, run.makespan_seconds)):
                limit = max(workers, spawn, key=lambda each: each.seconds)
        return limit if limit.seconds > 0 else None

    def beyond_limit(self) -> list[BenchRun]:
        """Lists the runs that were faster than their measured limit, which therefore was none."""
        found = ((run, self.limit(run)) for run in self.runs)
        return [run for run, limit in found if limit and is_beyond(limit, run.makespan_seconds)]


def is_beyond(limit: Limit, makespan_seconds: float) -> bool:
    """Whether a run took visibly less time than its limit: by more than half a percent."""
    return limit.seconds / makespan_seconds >= 1.005


def measured_run(
    *,
    sleep: bounds.Sleep,
    executor: str,
    tasks: int,
    workers: int,
    makespan_seconds: float,
    started_at: Sequence[float],
    finished_at: Sequence[float],
    latency_ms: LatencyMs,
    lost: int,
    duplicates: int,
    manager_rss_mb: float,
    server_cpu_seconds: float,
    manager_cpu_seconds: float,
    worker_cpu_seconds: float,
    sessions: int | None = None,
    chosen: bool = False,
) -> BenchRun:
    """Puts one measured run beside its bound and the figure of 2009.

    Args:
        workers: task slots, each running one task at a time.
        sessions: the workers that have these slots, if they run several tasks each.
        chosen: whether the bench chose their number.
        makespan_seconds: the time from the submission to the last accepted result.
        started_at: seconds since the submission, one per task that ran; `finished_at` likewise.
        latency_ms: the time that dispatch added to a task.

    Raises:
        KestrelError: nothing was lost, yet the makespan is below N·t/W.
    """
    bound = bounds.worker_time_bound(bounds.durations(sleep, tasks), workers)
    if not lost:
        bounds.check_plausible(makespan_seconds, bound)
    then = REFERENCE_2009.get(str(sleep))
    return BenchRun(
        sleep=str(sleep),
        executor=executor,
        jobs=tasks,
        workers=workers,
        makespan_seconds=round(makespan_seconds, 3),
        tasks_per_second=round((tasks - lost) / makespan_seconds, 4),
        bound_seconds=round(bound, 3),
        utilisation=round(bounds.utilisation(bound, makespan_seconds), 4),
        lost=lost,
        duplicates=duplicates,
        dispatch_latency_ms=latency_ms,
        manager_rss_mb=round(manager_rss_mb, 1),
        server_cpu_seconds=round(server_cpu_seconds, 2),
        manager_cpu_seconds=round(manager_cpu_seconds, 2),
        worker_cpu_seconds=round(worker_cpu_seconds, 2),
        reference_2009_seconds=then.makespan_seconds if then else None,
        timeline=timeline(started_at, finished_at),
        sessions=None if sessions == workers else sessions,
        chosen=chosen,
    )


def to_json(result: BenchResult, *, curves: bool = False) -> bytes:
    """Writes the result as JSON; the curves and the command line only if asked for."""
    if not curves:
        runs = [msgspec.structs.replace(run, timeline=None) for run in result.runs]
        result = msgspec.structs.replace(result, runs=runs, command=None)
    return msgspec.json.encode(result)
