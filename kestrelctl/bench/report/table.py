"""The table of a bench, for a terminal and for its page: columns, rows, what is said of them."""

from __future__ import annotations

from kestrelctl.bench.knee import HALF, MOST, curves, length
from kestrelctl.bench.report.wording import BEYOND_LIMIT, share_of_limit
from kestrelctl.bench.result import PLAIN, BenchResult, BenchRun

#: The columns, each with a width that most cells keep to, so that rows can be printed one by one.
_COLUMNS = {
    "sleep": 5,
    "tasks": 7,
    "workers": 7,
    "time": 9,
    "tasks/s": 7,
    "of the limit": 12,
    "lost": 4,
    "twice": 5,
}
_BESIDE_2009 = {"2009": 6, "faster": 12}

_OF = {"workers": "busy", "spawn": "starts"}


def is_beside_2009(result: BenchResult) -> bool:
    """Whether a run had the workers of 2009. No sweep is put beside 2009: it asks something else.

    In a pool of few workers with many tasks each, tasks cost less than in one like that of 2009.
    """
    return result.sweep is None and any(run.is_like_2009 for run in result.runs)


def columns(*, with_2009: bool) -> dict[str, int]:
    """Returns the columns, each with a width that most cells keep to."""
    return {**_COLUMNS, **_BESIDE_2009} if with_2009 else _COLUMNS


def rows(result: BenchResult, *, with_2009: bool | None = None) -> list[list[str]]:
    """Returns one row of cells per run, in the order of `columns`.

    Args:
        with_2009: whether there are the columns of 2009; by default, if they belong there.

    "of the limit" is the share of the larger bound in the time: of the machine's bare rate of
    process starts ("starts", as a rule for sleep 0), or of the workers' time ("busy": the
    utilisation). "2009" is the rate of that year, which is fair to any number of tasks, and
    "faster" the ratio to it, unless arithmetic allows no more.
    """
    if with_2009 is None:
        with_2009 = is_beside_2009(result)
    return [_row(result, run, with_2009=with_2009) for run in result.runs]


def _row(result: BenchResult, run: BenchRun, *, with_2009: bool) -> list[str]:
    limit = result.limit(run)
    rate = run.tasks_per_second
    cells = [
        run.sleep,
        f"{run.jobs:,}",
        run.size,
        f"{run.makespan_seconds:,.1f} s",
        f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.1f}",
        f"{share_of_limit(limit.seconds / run.makespan_seconds)} {_OF[limit.of]}" if limit else "-",
        f"{run.lost:,}",
        f"{run.duplicates:,}",
    ]
    if not with_2009:
        return cells
    if not run.is_like_2009 or run.reference is None or run.times_faster is None:
        return [*cells, "-", "-"]
    at_bound = run.times_faster < 1 and run.is_at_bound
    faster = "at the bound" if at_bound else f"{run.times_faster:.2f}x"
    return [*cells, f"{run.reference.tasks_per_second:,.0f}/s", faster]


def headline(result: BenchResult) -> str:
    """Describes the machine in one line."""
    machine = result.machine
    cores = f"{machine.cores} cores ({machine.cpu_model})"
    if result.spawn_limit_per_second is None:
        return f"Kestrel {machine.kestrel}, a given pool, seen from {cores}"
    tasks = "" if result.isolation == PLAIN else f", isolation {result.isolation}"
    if machine.launcher == "python":  # the slower way
        tasks += ", tasks started in Python"
    starts = f"{result.spawn_limit_per_second:,.0f} processes/s bare{spread(result)}"
    return f"Kestrel {machine.kestrel} on {cores}, which start {starts}{tasks}"


def spread(result: BenchResult) -> str:
    """Says how far apart the bare rates are that were measured before, between and after runs."""
    rates = result.spawn_rates_per_second
    if len(rates) < 2:
        return ""
    return f" (best of {len(rates)}, the lowest {min(rates):,.0f})"


def knee_lines(result: BenchResult) -> list[str]:
    """A line for each number of workers of a sweep: its knee, and the lengths that keep it busy."""
    return [
        f"{curve.workers:,} workers: knee "
        + (length(curve.knee_seconds) if curve.knee_seconds else "unknown (no sleep 0)")
        + "; measured: "
        + ", ".join(f"{share:.0%} busy at {curve.text_of(share)}" for share in (HALF, MOST))
        for curve in (curves(result.runs) if result.sweep else [])
    ]


def notes(result: BenchResult) -> list[str]:
    """Notes for a reader of the table: on shares above 100 %, and on a bench that ended early."""
    beyond = ", ".join(dict.fromkeys(f"sleep {run.sleep}" for run in result.beyond_limit()))
    found = [f"{beyond}: {BEYOND_LIMIT}"] if beyond else []
    return [*found, *([f"ended early by {result.ended_early}"] if result.ended_early else [])]
