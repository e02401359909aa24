"""The tables of an experiment with a flock: cells for a terminal, a page and a document alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from kestrel_experiments.flock.ideal import ideal_waits
from kestrel_experiments.flock.result import FlockResult, FlockRun, Gain, ModeResult, summary
from kestrel_experiments.flock.source import (
    FACTOR_OF_ABSTRACT,
    MACHINES,
    OVERALL,
    POOLS,
    WITHOUT_FLOCKING,
    traces,
)
from kestrel_experiments.flock.statistics import SeedSpread, spread
from kestrelctl.cli.show.grid import Grid, cell_columns, line_text
from kestrelctl.core.model.wording import plural

COLUMNS = (
    "pools",
    "pool",
    "mean",
    "5-95 %",
    "least",
    "most",
    "5-95 %",
    "ideal mean",
    "ideal most",
    "source mean",
    "source least",
    "source most",
)
GAIN_COLUMNS = (
    "pools",
    "D's longest ÷",
    "mean ÷",
    "A or B grows",
    "elsewhere",
    "idle, ms",
    "submitted, ms",
)
_NONE = "-"
_WORDS = {"without": "alone", "with": "flock", "static": "flock set by hand"}


def name_of(mode: str, delay_ms: float) -> str:
    """Returns the name of a setting."""
    return _WORDS[mode] + (f", {delay_ms:g} ms apart" if delay_ms else "")


def rows(result: FlockResult) -> list[list[str]]:
    """Lists queue times by setting and pool, in the order of `COLUMNS`, in the unit of the trace.

    Each figure is the median of the seeds. "Ideal" is first come, first served on the same traces
    without any delay, and "source" is what Butt, Zhang and Hu measured: both are of pools alone.
    """
    ideal = ideal_spreads({run.seed for run in result.runs}, result.most_tasks)
    found = []
    for setting in summary(result.runs):
        for pool in setting.pools:
            alone = setting.mode == "without"
            source = WITHOUT_FLOCKING.get(pool.pool) if alone else None
            at_best = ideal.get(pool.pool) if alone else None
            found.append(
                [
                    name_of(setting.mode, setting.delay_ms),
                    pool.pool,
                    number(pool.mean.median),
                    between(pool.mean),
                    number(pool.least.median),
                    number(pool.most.median),
                    between(pool.most),
                    *(number(each.median) for each in at_best or ()),
                    *([] if at_best else [_NONE] * 2),
                    *(f"{value:.2f}" for value in source or ()),
                    *([] if source else [_NONE] * 3),
                ]
            )
    return found


def gain_rows(result: FlockResult) -> list[list[str]]:
    """Tells what flocking changes, in the order of `GAIN_COLUMNS`: medians, 5 to 95 % of seeds."""
    return [
        [name_of(setting.mode, setting.delay_ms), *_gain_cells(setting)]
        for setting in summary(result.runs)
        if setting.mode != "without"
    ]


def _gain_cells(setting: ModeResult) -> list[str]:
    gain = setting.gain or Gain(None, None, None)
    elsewhere = setting.elsewhere
    return [
        with_range(gain.loaded_most),
        with_range(gain.overall_mean),
        with_range(gain.unloaded_growth),
        f"{elsewhere.median:.0%}",
        _pair(setting.after_idle_ms),
        _pair(setting.after_submission_ms),
    ]


def audit_lines(result: FlockResult) -> list[str]:
    """Tells what became of the tasks of each setting, and everything that is wrong."""
    lines = []
    for setting in summary(result.runs):
        runs = [run for run in result.runs if _is_of(run, setting)]
        attempts = sum(run.audit.attempts for run in runs)
        again = attempts - setting.tasks
        lines.append(
            f"{name_of(setting.mode, setting.delay_ms)}: {plural(setting.tasks, 'task')} of "
            f"{plural(setting.seeds, 'seed')}, {setting.lost:,} lost, {setting.twice:,} accepted "
            f"twice" + (f", {plural(again, 'attempt')} given back" if again > 0 else "")
        )
        lines += [f"  seed {run.seed}: {breach}" for run in runs for breach in run.audit.breaches]
        lines += [f"  seed {run.seed}: {fault}" for run in runs for fault in run.faults]
    return lines


def notes(result: FlockResult) -> list[str]:
    """Tells what a reader of the tables has to know."""
    late_ms = max((run.late_ms for run in result.runs), default=0.0)
    said = [
        f"a unit is {1000 * result.unit_seconds:g} ms; {MACHINES} machines a pool; tasks were "
        f"submitted at most {late_ms:,.0f} ms late",
        f"the source says of flocking only that it divides the longest wait of a loaded pool by "
        f"{FACTOR_OF_ABSTRACT:g}; its table is of pools alone",
    ]
    if any(run.mode != "without" for run in result.runs):
        said.append(
            "÷ is without flocking over with it; A or B grows: the mean of the one that pays more; "
            "elsewhere: the share of tasks that ran in another pool; idle: from a machine that "
            "falls idle to a waiting task of another pool that starts there; submitted: from the "
            "submission to the start, if the machine was idle already; both p50/p99"
        )
    if result.most_tasks is not None:
        said.append(
            f"only the first {plural(result.most_tasks, 'task')} of each pool: not to be put "
            f"beside the source"
        )
    if result.ended_early:
        said.append(f"ended early by {result.ended_early}")
    return said


@cache
def _ideal_figures(seed: int, most_tasks: int | None) -> dict[str, tuple[float, float]]:
    """Computes mean and longest queue time of each pool, and of all, if nothing took any time."""
    waits = {
        pool: ideal_waits(tasks[:most_tasks], MACHINES) for pool, tasks in traces(seed).items()
    }
    waits[OVERALL] = [wait for each in waits.values() for wait in each]
    return {pool: (sum(each) / len(each), max(each)) for pool, each in waits.items()}


def ideal_spreads(
    seeds: Iterable[int], most_tasks: int | None = None
) -> dict[str, tuple[SeedSpread, SeedSpread]]:
    """Computes mean and longest queue time of pools alone over seeds, first come, first served."""
    figures = [_ideal_figures(seed, most_tasks) for seed in seeds]
    found = {}
    for pool in (*(each.name for each in POOLS), OVERALL):
        mean = spread(each[pool][0] for each in figures)
        most = spread(each[pool][1] for each in figures)
        if mean is not None and most is not None:
            found[pool] = (mean, most)
    return found


def text_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Aligns plain text, the first column to the left, without a final newline."""
    headings = [(title, place > 0) for place, title in enumerate(columns)]
    return "\n".join(map(line_text, Grid(cell_columns(headings)).lines(lines)))


def text(result: FlockResult) -> str:
    """Writes all of it as plain text, without a final newline."""
    machine = result.machine
    parts = [
        f"Kestrel {machine.kestrel} on {machine.cores} cores ({machine.cpu_model})",
        text_table(COLUMNS, rows(result)),
    ]
    if gains := gain_rows(result):
        parts.append(text_table(GAIN_COLUMNS, gains))
    parts += ["\n".join(audit_lines(result)), "\n".join(notes(result))]
    return "\n\n".join(parts)


def number(value: float) -> str:
    """Formats a number with as many digits as are worth something."""
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"


def between(found: SeedSpread) -> str:
    return f"{number(found.low)}-{number(found.high)}"


def with_range(found: SeedSpread | None) -> str:
    """Formats a figure as `11.4 (8.2-14.0)`; a dash if there is nothing."""
    return _NONE if found is None else f"{number(found.median)} ({between(found)})"


def _pair(found: tuple[float, float] | None) -> str:
    return _NONE if found is None else "/".join(f"{value:,.0f}" for value in found)


def _is_of(run: FlockRun, setting: ModeResult) -> bool:
    return (run.mode, run.delay_ms) == (setting.mode, setting.delay_ms)
