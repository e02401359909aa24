"""Puts results beside each other, run by run: ratios, and which of them are more than noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import msgspec

from kestrelctl.bench.result import BenchResult, BenchRun
from kestrelctl.errors import UsageError

THRESHOLD = 0.10
"""What counts as noise: on a shared machine two runs of one program differ by some percent."""

Verdict = Literal["same", "better", "worse", "unknown"]
Key = tuple[str, str, int, int]


class Change(msgspec.Struct, frozen=True):
    """One measure of a run in two results.

    Attributes:
        ratio: after over before; None, and "unknown", where a value is missing or not comparable.
    """

    before: float
    after: float
    ratio: float | None
    verdict: Verdict


class Pairing(msgspec.Struct, frozen=True):
    """One run in two results; `jobs` are their numbers of tasks, `changes` by name of measure."""

    result: str
    sleep: str
    executor: str
    workers: int
    jobs: tuple[int, int]
    changes: dict[str, Change]


class Comparison(msgspec.Struct, frozen=True):
    """Results beside the first one.

    Attributes:
        threshold: a ratio that is further than this from 1 is more than noise.
        runs: the runs that the first result has in common with another one.
        warnings: reasons why the figures may not be comparable.
    """

    baseline: str
    threshold: float
    runs: list[Pairing]
    warnings: list[str]

    def slower(self, share: float) -> list[Pairing]:
        """Runs whose tasks per second fell by more than this share (0 to 1)."""
        return [run for run in self.runs if _ratio(run, "tasks_per_second") < 1 - share]


class Measure(NamedTuple):
    """A figure that is compared; 0 means that it was not measured.

    Attributes:
        whole: it grows with the number of tasks, so runs of different size cannot be compared.
    """

    name: str
    of: Callable[[BenchRun], float]
    more_is_better: bool = False
    whole: bool = False


MEASURES = (
    Measure("makespan_seconds", lambda run: run.makespan_seconds, whole=True),
    Measure("tasks_per_second", lambda run: run.tasks_per_second, more_is_better=True),
    Measure("utilisation", lambda run: run.utilisation, more_is_better=True),
    Measure("latency_p50_ms", lambda run: run.dispatch_latency_ms.p50),
    Measure("latency_p99_ms", lambda run: run.dispatch_latency_ms.p99),
    Measure("cpu_seconds_per_1000_tasks", lambda run: 1000 * run.cpu_seconds / run.jobs),
)


def compare(
    results: Sequence[BenchResult], labels: Sequence[str], threshold: float = THRESHOLD
) -> Comparison:
    """Compares each result with the first; runs match by sleep time, executor and workers.

    If results have several matching runs, the first is compared with the first, and so on.

    Raises:
        UsageError: there are fewer than two results, or one has no run in common with the first.
    """
    if len(results) < 2:
        raise UsageError("to compare takes two results", hint="kestrelctl bench compare A B")
    (first, baseline), *others = zip(results, labels, strict=True)
    before = _keyed(first.runs)
    runs: list[Pairing] = []
    warnings = _losses(first, baseline)
    for result, label in others:
        after = _keyed(result.runs)
        common = [key for key in before if key in after]
        if not common:
            raise UsageError(
                f"{label} has no run in common with {baseline}",
                cause=f"{baseline}: {_listed(before)}; {label}: {_listed(after)}",
                hint="runs match by sleep time, executor and number of workers",
            )
        runs += [_pair(label, before[key], after[key], threshold) for key in common]
        warnings += [*_differences(first, baseline, result, label, threshold)]
        warnings += _losses(result, label)
    return Comparison(baseline, threshold, runs, warnings)


def _keyed(runs: Sequence[BenchRun]) -> dict[Key, BenchRun]:
    """Sorts runs by the fields they match by, and numbers the runs that are alike in these.

    Numbers of workers that a bench chose differ a little each time; they match each other.
    """
    found: dict[Key, BenchRun] = {}
    for run in runs:
        kind = (run.sleep, run.executor, 0 if run.chosen else run.workers)
        found[*kind, sum(key[:3] == kind for key in found)] = run
    return found


def _listed(keys: dict[Key, BenchRun]) -> str:
    return ", ".join(
        f"sleep {sleep} ({executor}) on {n or 'as many as suit'}" for sleep, executor, n, _ in keys
    )


def _pair(label: str, before: BenchRun, after: BenchRun, threshold: float) -> Pairing:
    same_size = before.jobs == after.jobs
    changes = {
        measure.name: _change(
            measure, measure.of(before), measure.of(after), threshold, same_size=same_size
        )
        for measure in MEASURES
    }
    return Pairing(
        label, before.sleep, before.executor, before.workers, (before.jobs, after.jobs), changes
    )


def _change(
    measure: Measure, before: float, after: float, threshold: float, *, same_size: bool
) -> Change:
    if before <= 0 or after <= 0 or (measure.whole and not same_size):
        return Change(before, after, None, "unknown")
    ratio = after / before
    verdict: Verdict = "same"
    if abs(ratio - 1) > threshold:
        verdict = "better" if (ratio > 1) == measure.more_is_better else "worse"
    return Change(round(before, 6), round(after, 6), round(ratio, 4), verdict)


def _ratio(run: Pairing, name: str) -> float:
    ratio = run.changes[name].ratio
    return 1.0 if ratio is None else ratio


def _differences(
    first: BenchResult, baseline: str, second: BenchResult, label: str, threshold: float
) -> list[str]:
    """Lists what speaks against comparing two results; the version of Kestrel may differ."""
    differing = [
        f"{name} {ours} and {theirs}"
        for name in ("cores", "cpu_model", "memory_mb", "kernel", "python", "prosody")
        if (ours := getattr(first.machine, name)) != (theirs := getattr(second.machine, name))
    ]
    found = []
    if differing:
        found.append(f"{baseline} and {label} ran on different machines: {', '.join(differing)}")
    before, after = first.spawn_limit_per_second, second.spawn_limit_per_second
    if before and after and abs(after / before - 1) > threshold:
        found.append(
            f"the machine of {label} started {after:,.0f} bare processes a second, "
            f"that of {baseline} {before:,.0f} ({after / before:.2f} times)"
        )
    return found


def _losses(result: BenchResult, label: str) -> list[str]:
    return [
        f"{label} has {run.lost:,} lost and {run.duplicates:,} duplicate tasks in sleep {run.sleep}"
        for run in result.runs
        if run.lost or run.duplicates
    ]
