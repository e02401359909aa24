"""The results of sharing hosts out among classes of work: runs, and their figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from kestrel_experiments.flock.audit import FlockAudit, audit
from kestrel_experiments.flock.record import PoolRecords
from kestrel_experiments.flock.statistics import SeedSpread, spread
from kestrel_experiments.imbalance.class_load import (
    SHARES,
    SHARINGS,
    ClassTask,
    ImbalancePlan,
    Sharing,
    least_makespan,
)
from kestrel_experiments.imbalance.environment_watch import EnvironmentSpan
from kestrelctl.bench.bounds import check_plausible, worker_time_bound
from kestrelctl.bench.machine import BenchMachine
from kestrelctl.bench.report.curves import timeline

#: The most that the makespan on demand should be, as a ratio to that of the static partition.
WANTED_RATIO = 0.6


class ClassWaits(msgspec.Struct, frozen=True):
    """Queue times of the tasks of one class in one run, in seconds."""

    of: str
    tasks: int
    mean: float
    most: float


class ImbalanceRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        waits: queue times of each class.
        makespan_seconds: from the moment 0 of the load to the end of the last task.
        bound_seconds: the least makespan of a pool that shares its hosts out so.
        utilisation: the share of the hosts' time, until the makespan, that was spent in tasks.
        started: number of environments that were ordered from the moment 0 on.
        starting_seconds: how long these held their hosts before they could work, together.
        late_ms: the longest time that a task was submitted after its moment.
        bin_seconds, busy: hosts that run a task, on average in each bin of that length.
        problems: what the audit of a simulated pool found.
    """

    sharing: Sharing
    seed: int
    waits: list[ClassWaits]
    makespan_seconds: float
    bound_seconds: float
    utilisation: float
    started: int
    starting_seconds: float
    audit: FlockAudit
    late_ms: float = 0.0
    bin_seconds: float = 1.0
    busy: list[float] = []
    problems: list[str] = []

    @property
    def wrong(self) -> list[str]:
        """Everything that should not be, in words."""
        return [*self.audit.breaches, *self.problems]

    def waits_of(self, of: str) -> ClassWaits:
        """Returns the queue times of a class."""
        return next(waits for waits in self.waits if waits.of == of)


class ImbalanceResult(msgspec.Struct, frozen=True, kw_only=True):
    """All runs: the load, the machine, and the command.

    Attributes:
        start_seconds: limits of the time that environments took to come up in a simulated pool;
            None where they were real.
        ended_early: what ended it before its last run; empty if nothing did.
    """

    machine: BenchMachine
    command: str
    plan: ImbalancePlan
    runs: list[ImbalanceRun]
    start_seconds: tuple[float, float] | None = None
    ended_early: str = ""


class SharingFigures(msgspec.Struct, frozen=True):
    """The figures of all seeds of one way to share hosts out.

    Attributes:
        waits: mean and longest queue time of each class.
        ratio: ratio of its makespans to those of the static partition, seed by seed; None without
            those.
    """

    sharing: Sharing
    seeds: int
    makespan_seconds: SeedSpread
    utilisation: SeedSpread
    started: SeedSpread
    starting_seconds: SeedSpread
    waits: dict[str, tuple[SeedSpread, SeedSpread]]
    ratio: SeedSpread | None


def run_of(
    plan: ImbalancePlan,
    sharing: Sharing,
    seed: int,
    tasks: Sequence[ClassTask],
    keys: Sequence[str],
    began_at: float,
    told: PoolRecords,
    spans: Iterable[EnvironmentSpan],
    *,
    expected: Mapping[str, float],
    late_ms: float = 0.0,
    problems: Sequence[str] = (),
) -> ImbalanceRun:
    """Sums up a run.

    Args:
        keys: the keys of the submissions of these tasks.
        began_at: the moment 0 of the load, in seconds since the epoch.
        told: the pool's records of all of them.
        expected: how long each should have run, by its key.

    Raises:
        KestrelError: it was done sooner than is possible.
    """
    class_of = {key: task.of for key, task in zip(keys, tasks, strict=True)}
    ran = [task for task in told.tasks if task.started_at]
    ended_at = max((task.ended_at for task in ran), default=began_at)
    makespan = ended_at - began_at
    bound = least_makespan(plan, sharing, list(tasks))
    found = audit({told.pool: expected}, {told.pool: told})
    if not found.lost:
        check_plausible(makespan, bound)
    curves = timeline(
        (task.started_at - began_at for task in ran), (task.ended_at - began_at for task in ran)
    )
    meanwhile = [span for span in spans if span.ordered_at >= began_at]
    return ImbalanceRun(
        sharing=sharing,
        seed=seed,
        waits=[
            _waits(of, [task.waited_seconds for task in ran if class_of.get(task.key) == of])
            for of in SHARES
        ],
        makespan_seconds=round(makespan, 3),
        bound_seconds=round(bound, 3),
        utilisation=round(
            worker_time_bound([task.wall_seconds for task in ran], plan.hosts) / makespan, 4
        ),
        started=len(meanwhile),
        starting_seconds=round(sum(span.starting_seconds(ended_at) for span in meanwhile), 2),
        audit=found,
        late_ms=late_ms,
        bin_seconds=curves.bin_seconds,
        busy=curves.running,
        problems=list(problems),
    )


def _waits(of: str, seconds: list[float]) -> ClassWaits:
    mean = fmean(seconds) if seconds else 0.0
    return ClassWaits(of, len(seconds), round(mean, 3), round(max(seconds, default=0.0), 3))


def figures(runs: Sequence[ImbalanceRun]) -> list[SharingFigures]:
    """Sums up the seeds of each way, the static partition first."""
    static = {run.seed: run.makespan_seconds for run in runs if run.sharing == "static"}
    found = []
    for sharing in SHARINGS:
        own = [run for run in runs if run.sharing == sharing]
        if not own:
            continue
        beside = [
            run.makespan_seconds / static[run.seed]
            for run in own
            if run.seed in static and sharing != "static"
        ]
        waits = {
            of: (
                _spread(run.waits_of(of).mean for run in own),
                _spread(run.waits_of(of).most for run in own),
            )
            for of in SHARES
        }
        found.append(
            SharingFigures(
                sharing,
                len(own),
                _spread(run.makespan_seconds for run in own),
                _spread(run.utilisation for run in own),
                _spread(float(run.started) for run in own),
                _spread(run.starting_seconds for run in own),
                waits,
                spread(beside),
            )
        )
    return found


def _spread(values: Iterable[float]) -> SeedSpread:
    found = spread(values)
    assert found is not None
    return found
