"""The figures of an experiment with a flock: queue times, gains by seed, and idle machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil

from kestrel_experiments.flock.result import FlockRun, ModeResult, summary
from kestrel_experiments.flock.source import OVERALL, WITHOUT_FLOCKING
from kestrel_experiments.flock.statistics import SeedSpread
from kestrel_experiments.flock.table import name_of, number
from kestrel_experiments.spread_figure import LEAST, spread_figure
from kestrelctl.bench.report.plot import BOUND, END, Plot, drawing

#: Points of a distribution: more than a curve has pixels would be waste.
_MOST_POINTS = 400


def spreads(settings: Sequence[ModeResult], of: str, what: str) -> Plot:
    """Draws one figure (`mean` or `most`) of each pool's queue time: a row for each setting.

    The dot is the median of the seeds, the line goes from the 5th to the 95th percentile, and the
    diamond is the source's.
    """
    pools = [pool.pool for pool in settings[0].pools]
    groups: dict[str, dict[str, SeedSpread]] = {_label(pool): {} for pool in pools}
    for setting in settings:
        for pool in setting.pools:
            name = name_of(setting.mode, setting.delay_ms)
            groups[_label(pool.pool)][name] = getattr(pool, of)
    source = {
        _label(pool): getattr(WITHOUT_FLOCKING[pool], of)
        for pool in pools
        if pool in WITHOUT_FLOCKING
    }
    return spread_figure(groups, what, number, source)


def _label(pool: str) -> str:
    return f"pool {pool}" if pool != OVERALL else pool


@drawing()
def distribution(runs: Sequence[FlockRun], pool: str) -> Plot:
    """Draws the share of a pool's tasks that waited no longer; a curve for each setting."""
    settings = summary(runs)
    curves = []
    for setting in settings:
        waits = sorted(
            wait
            for run in setting.among(runs)
            if (found := run.of(pool)) is not None
            for wait in found.waits
        )
        curves.append(waits)
    most = max((waits[-1] for waits in curves if waits), default=1.0)
    plot = _shares(
        f"Distribution of queue times, {_pool_words(pool)}.",
        settings,
        curves,
        number,
        x_label="queue time, units of the trace",
        y_label="share of tasks that waited no longer",
    )
    plot.decades(LEAST, max(LEAST * 10, most))
    _draw(plot, curves, first=0)
    return plot


@drawing()
def gains(runs: Sequence[FlockRun], pool: str, of: str, what: str, wanted: float) -> Plot:
    """Draws ratios of without to with, by seed, from the least to the most; a line at `wanted`."""
    base = {run.seed: run for run in runs if run.mode == "without"}
    settings = [setting for setting in summary(runs) if setting.mode != "without"]
    curves = []
    for setting in settings:
        ratios = sorted(
            getattr(before, of) / getattr(after, of)
            for run in setting.among(runs)
            if run.seed in base
            and (before := base[run.seed].of(pool)) is not None
            and (after := run.of(pool)) is not None
            and getattr(after, of) > 0
        )
        curves.append(ratios)
    seeds = max(map(len, curves), default=1)
    plot = Plot(
        f"{what}, without flocking over with it, by seed. "
        + " ".join(
            f"{name_of(s.mode, s.delay_ms)}: {number(ratios[0])} to {number(ratios[-1])}."
            for s, ratios in zip(settings, curves, strict=True)
            if ratios
        ),
        x_label="seeds, from the least gain to the most",
        y_label="times shorter",
    )
    plot.axes.axhline(wanted, **BOUND)
    for place, ratios in enumerate(curves, start=1):
        if ratios:
            plot.dots(enumerate(ratios, start=1), place)
    plot.axes.set_xticks(range(1, seeds + 1, ceil(seeds / 10)))
    plot.axes.set_xlim(0.5, seeds + 0.5)
    plot.numbers("y")
    return plot


@drawing()
def idle(runs: Sequence[FlockRun], wanted_ms: float) -> Plot | None:
    """Draws how soon idle machines took tasks of other pools: a curve for each setting.

    None if no machine did.
    """
    settings = [setting for setting in summary(runs) if setting.mode != "without"]
    curves = [
        sorted(ms for run in setting.among(runs) for ms in run.starts.after_idle)
        for setting in settings
    ]
    if not any(curves):
        return None
    most = max(values[-1] for values in curves if values)
    plot = _shares(
        "From a machine that falls idle to the start of a task of another pool there.",
        settings,
        curves,
        "{:,.0f} ms".format,
        x_label="milliseconds from idle to start",
        y_label="share of tasks that ran elsewhere",
    )
    plot.decades(1.0, max(wanted_ms, most))
    plot.axes.axvline(wanted_ms, **END)
    _draw(plot, curves, first=1)
    return plot


def _shares(
    what: str,
    settings: Sequence[ModeResult],
    curves: Sequence[Sequence[float]],
    say: Callable[[float], str],
    *,
    x_label: str,
    y_label: str,
) -> Plot:
    """Draws the axes for distributions of sorted values, and tells the middle of each."""
    middles = [
        f"{name_of(setting.mode, setting.delay_ms)}: half within {say(values[len(values) // 2])}."
        for setting, values in zip(settings, curves, strict=True)
        if values
    ]
    plot = Plot(" ".join([what, *middles]), x_label=x_label, y_label=y_label)
    plot.percents("y")
    return plot


def _draw(plot: Plot, curves: Sequence[Sequence[float]], *, first: int) -> None:
    """Draws distributions of sorted values, in the colours from `first` on."""
    for place, values in enumerate(curves, start=first):
        if values:
            plot.curve(_steps(values), place)


def _steps(values: Sequence[float]) -> list[tuple[float, float]]:
    """Returns points of the distribution of sorted values, not more than can be seen."""
    every = max(1, len(values) // _MOST_POINTS)
    points = [(value, (place + 1) / len(values)) for place, value in enumerate(values)]
    return [*points[:-1:every], points[-1]]


def _pool_words(pool: str) -> str:
    return "all pools" if pool == OVERALL else f"pool {pool}"
