"""The result of an experiment with a flock, as data and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from kestrel_experiments.flock.audit import FlockAudit
from kestrel_experiments.flock.source import OVERALL, POOLS
from kestrel_experiments.flock.statistics import FlockWaits, SeedSpread, Starts, spread
from kestrelctl.bench.machine import BenchMachine
from kestrelctl.bench.saved import read_saved
from kestrelctl.core.counting.percentile import percentile

SCHEMA = 1

#: Without flocking; with it; and with pools that were told of each other once, by hand.
Mode = Literal["without", "with", "static"]
MODES: tuple[Mode, ...] = ("without", "with", "static")


class FlockRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One trace on four pools.

    Attributes:
        delay_ms: the delay that was put between each two servers, each way.
        waits: queue times of each pool, and of all together.
        lent: number of tasks that ran elsewhere, by home and by lender.
        late_ms: the longest time that a task was submitted after its moment.
        faults: what was done to the pools meanwhile.
    """

    mode: Mode
    seed: int
    delay_ms: float
    waits: list[FlockWaits]
    audit: FlockAudit
    late_ms: float
    lent: dict[str, dict[str, int]] = {}
    starts: Starts = Starts()
    faults: list[str] = []

    def of(self, pool: str) -> FlockWaits | None:
        """The queue times of a pool, or of `all`; None if it was not there."""
        return next((waits for waits in self.waits if waits.pool == pool), None)


class FlockResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """An experiment: the machine, the runs, and the command that made it.

    Attributes:
        unit_seconds: how long a unit of the trace was.
        summary: summary of the runs, for those who read JSON; empty in a saved result.
        ended_early: what ended it before its last run; None if nothing did.
        most_tasks: number of tasks of each pool, if only the beginning of the traces was run.
    """

    machine: BenchMachine
    unit_seconds: float
    runs: list[FlockRun]
    command: str | None = None
    schema: int = SCHEMA
    ended_early: str | None = None
    most_tasks: int | None = None
    summary: list[ModeResult] = []


class PoolSpread(msgspec.Struct, frozen=True):
    """Queue times of a pool over all seeds."""

    pool: str
    mean: SeedSpread
    least: SeedSpread
    most: SeedSpread


class Gain(msgspec.Struct, frozen=True):
    """The changes that flocking makes, seed by seed.

    Attributes:
        loaded_most: ratio of without to with, of the longest wait of a task of the loaded pool.
        overall_mean: ratio of without to with, of the mean wait of all tasks.
        unloaded_growth: how much the mean wait of an unloaded pool grows, for the pool where it
            grows most; units of the trace.
    """

    loaded_most: SeedSpread | None
    overall_mean: SeedSpread | None
    unloaded_growth: SeedSpread | None


class ModeResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """All runs of one mode and one delay.

    Attributes:
        elsewhere: the share of tasks that ran on machines of other pools.
        after_idle_ms: p50 and p99 of `Starts.after_idle` over all runs; None without any.
        after_submission_ms: likewise.
        gain: compared with the same seeds without flocking.
        lost, twice: over all runs.
    """

    mode: Mode
    delay_ms: float
    seeds: int
    tasks: int
    lost: int
    twice: int
    breaches: int
    pools: list[PoolSpread]
    elsewhere: SeedSpread
    late_ms: float
    after_idle_ms: tuple[float, float] | None = None
    after_submission_ms: tuple[float, float] | None = None
    gain: Gain | None = None

    def among(self, runs: Iterable[FlockRun]) -> list[FlockRun]:
        """Returns those of these runs that have this mode and delay."""
        return [run for run in runs if (run.mode, run.delay_ms) == (self.mode, self.delay_ms)]


def summary(runs: Sequence[FlockRun]) -> list[ModeResult]:
    """Sums up the runs of each mode and delay, the mode `without` first."""
    kinds = dict.fromkeys((run.mode, run.delay_ms) for run in runs)
    ordered = sorted(kinds, key=lambda kind: (MODES.index(kind[0]), kind[1]))
    base = {run.seed: run for run in runs if run.mode == "without"}
    return [
        _setting([run for run in runs if (run.mode, run.delay_ms) == kind], base)
        for kind in ordered
    ]


def _setting(runs: Sequence[FlockRun], base: dict[int, FlockRun]) -> ModeResult:
    first = runs[0]
    pairs = [(base[run.seed], run) for run in runs if run.seed in base]
    shares = [
        whole.elsewhere / whole.tasks for run in runs if (whole := run.of(OVERALL)) and whole.tasks
    ]
    return ModeResult(
        mode=first.mode,
        delay_ms=first.delay_ms,
        seeds=len(runs),
        tasks=sum(run.audit.tasks for run in runs),
        lost=sum(run.audit.lost for run in runs),
        twice=sum(run.audit.twice for run in runs),
        breaches=sum(len(run.audit.breaches) for run in runs),
        pools=[_pool_spread(waits.pool, runs) for waits in first.waits],
        elsewhere=spread(shares) or SeedSpread(0.0, 0.0, 0.0),
        late_ms=max(run.late_ms for run in runs),
        after_idle_ms=_p50_p99(ms for run in runs for ms in run.starts.after_idle),
        after_submission_ms=_p50_p99(ms for run in runs for ms in run.starts.after_submission),
        gain=_gain(pairs) if first.mode != "without" and pairs else None,
    )


def _pool_spread(pool: str, runs: Sequence[FlockRun]) -> PoolSpread:
    found = [waits for run in runs if (waits := run.of(pool)) is not None]
    none = SeedSpread(0.0, 0.0, 0.0)
    return PoolSpread(
        pool,
        spread(waits.mean for waits in found) or none,
        spread(waits.least for waits in found) or none,
        spread(waits.most for waits in found) or none,
    )


def _gain(pairs: Sequence[tuple[FlockRun, FlockRun]]) -> Gain:
    loaded = [pool.name for pool in POOLS if pool.is_loaded]
    unloaded = [pool.name for pool in POOLS if pool.is_unloaded]
    mosts, means, growths = [], [], []
    for without, flocked in pairs:
        for pool in loaded:
            mosts += _ratio(without.of(pool), flocked.of(pool), "most")
        means += _ratio(without.of(OVERALL), flocked.of(OVERALL), "mean")
        grown = [
            after.mean - before.mean
            for pool in unloaded
            if (before := without.of(pool)) and (after := flocked.of(pool))
        ]
        growths += [max(grown)] if grown else []
    return Gain(spread(mosts), spread(means), spread(growths))


def _ratio(without: FlockWaits | None, flocked: FlockWaits | None, of: str) -> list[float]:
    """Returns the ratio of a figure; nothing if a pool is missing or the divisor is 0."""
    if without is None or flocked is None or not getattr(flocked, of):
        return []
    return [getattr(without, of) / getattr(flocked, of)]


def _p50_p99(values: Iterable[float]) -> tuple[float, float] | None:
    ordered = sorted(values)
    p50, p99 = percentile(ordered, 50), percentile(ordered, 99)
    return (p50, p99) if p50 is not None and p99 is not None else None


def to_json(result: FlockResult, *, waits: bool = False) -> bytes:
    """Writes the result as JSON; the queue time of every task and the command only if asked for."""
    if not waits:
        runs = [_without_waits(run) for run in result.runs]
        result = msgspec.structs.replace(result, runs=runs, command=None)
    return msgspec.json.encode(msgspec.structs.replace(result, summary=summary(result.runs)))


def _without_waits(run: FlockRun) -> FlockRun:
    waits = [msgspec.structs.replace(each, waits=[]) for each in run.waits]
    return msgspec.structs.replace(run, waits=waits)


def read_flock_result(path: Path) -> FlockResult:
    """Reads the result from a file (of `-o json`), or from a directory that `--report` made.

    Raises:
        UsageError: it cannot be read, is no result, or has another schema than this version knows.
    """
    return read_saved(
        path / "flock.json" if path.is_dir() else path,
        FlockResult,
        SCHEMA,
        "the result of an experiment with a flock",
        "give a file made by `kestrelctl bench flock -o json`, or its --report directory",
    )
