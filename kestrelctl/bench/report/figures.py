"""The figures of a report: each from one or more results, beside 2009 where possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from kestrelctl.bench.knee import HALF, Curve, length
from kestrelctl.bench.report.curves import Timeline
from kestrelctl.bench.report.plot import (
    BOUND,
    END,
    HALF_LINE,
    OF_2009,
    PAPER,
    SERIES_COLOURS,
    Plot,
    drawing,
)
from kestrelctl.bench.result import BenchRun, Limit

#: The most curves that colour and dash can tell apart; 2009 and the limits have their own.
MOST_SERIES = len(SERIES_COLOURS)
_EFFICIENCY_HEIGHT = 270
#: The height of a row of labels for knees.
_KNEE_ROW = 22


class PlottedRun(NamedTuple):
    """One run that a figure shows, with its label and the number of the result it is from."""

    label: str
    number: int
    run: BenchRun
    limit: Limit | None

    @property
    def kind(self) -> str:
        """Its class in the style of the page."""
        return f"s{self.number}"


@drawing()
def completed(series: Sequence[PlottedRun]) -> Plot:
    """Draws the tasks that have ended so far over the seconds of each run.

    A thin line shows the tasks started so far, an upright one the earliest possible end of the
    first run.
    """
    first = series[0].run
    what = f"Tasks completed over the course of the run, sleep {first.sleep}"
    plot = _over_time(_alt(what, series), series, "tasks completed")
    if first.reference:
        rate = first.reference.tasks_per_second
        end = min(_longest(series), first.jobs / rate)
        plot.axes.plot([0, end], [0, end * rate], label=f"2009, mean: {rate:,.0f}/s", **OF_2009)
    _earliest_end(plot, series[0])
    for each in reversed(series):  # the first one on top
        edges, curves = _edges(each), _timeline(each)
        begun, ended = list(accumulate(curves.dispatched)), list(accumulate(curves.finished))
        plot.stairs(edges, begun, each.number, thin=True, label="started")
        plot.stairs(edges, ended, each.number, label="completed")
    plot.numbers("y")
    return plot


@drawing()
def running(series: Sequence[PlottedRun]) -> Plot:
    """Draws the share of busy workers over the seconds of each run; tasks running for `sleep 0`.

    An upright line shows the earliest possible end of the first run.
    """
    first = series[0].run
    has_length = first.utilisation > 0
    label = "share of workers busy" if has_length else "tasks running"
    what = f"{label} over the course of the run, sleep {first.sleep}"
    plot = _over_time(_alt(what, series), series, label)
    if first.reference and has_length:
        then = min(1.0, first.reference.utilisation)
        plot.axes.axhline(then, label=f"2009, mean: {then:.0%} of the workers", **OF_2009)
    _earliest_end(plot, series[0])
    for each in reversed(series):
        edges, values = _edges(each), _timeline(each).running
        if has_length:
            values = [min(1.0, value / each.run.workers) for value in values]
        if len(series) == 1:
            plot.area(edges, values, each.number)
        plot.stairs(edges, values, each.number, label=label)
    if has_length:
        plot.percents("y")
    else:
        plot.numbers("y")
    return plot


@drawing()
def dispatched(series: Sequence[PlottedRun]) -> Plot:
    """Draws tasks started a second over the time of each run, the limit of the first, and 2009."""
    return _rates("dispatched", series, lambda curves: curves.dispatched)


@drawing()
def finished(series: Sequence[PlottedRun]) -> Plot:
    """Draws tasks finished a second, likewise; a single run has the rate of each bin behind it."""
    return _rates("finished", series, lambda curves: curves.finished, bins=len(series) == 1)


#: The figures of a run.
OVER_TIME = (completed, running, dispatched, finished)


def _rates(
    what: str,
    series: Sequence[PlottedRun],
    counts: Callable[[Timeline], list[int]],
    *,
    bins: bool = False,
) -> Plot:
    first = series[0]
    then = first.run.reference.tasks_per_second if first.run.reference else 0.0
    plot = _over_time(
        _alt(f"Tasks {what} a second over the course of the run, sleep {first.run.sleep}", series)
        + (f" In 2009: {then:,.0f} a second." if then else ""),
        series,
        f"tasks {what} per second",
    )
    if first.limit:
        most = first.run.jobs / first.limit.seconds
        bound = "bare process starts" if first.limit.of == "spawn" else "all workers busy"
        plot.axes.axhline(most, label=f"{bound}: {most:,.0f}/s", **BOUND)
    if then:
        plot.axes.axhline(then, label=f"2009, mean: {then:,.0f}/s", **OF_2009)
    for each in reversed(series):
        edges, curves, window = _edges(each), _timeline(each), each.run.window_seconds
        smooth = curves.per_second(counts(curves), window)
        if len(series) == 1:
            behind = curves.per_second(counts(curves)) if bins else smooth
            label = f"{what}, each {curves.bin_seconds:.3g} s" if bins else ""
            plot.area(edges, behind, each.number, label=label)
        label = f"{what}, mean of {window:.3g} s"
        plot.stairs(edges, smooth, each.number, label=label)
    plot.numbers("y")
    return plot


def in_figures(curves: Sequence[Curve]) -> list[Sequence[Curve]]:
    """Splits curves into figures, each with as many as can be told apart."""
    return [curves[first : first + MOST_SERIES] for first in range(0, len(curves), MOST_SERIES)]


@drawing()
def efficiency(curves: Sequence[Curve]) -> Plot:
    """Draws utilisation against task length, one curve for each number of workers, with its knee.

    Diamonds mark the knees on top, each joined to its curve; rings mark where a half was measured.
    """
    knees = [curve.knee_seconds for curve in curves if curve.knee_seconds]
    plot = Plot(
        "Efficiency against task length. " + " ".join(map(_in_words, curves)),
        x_label="length of a task, seconds",
        y_label="share of the workers' time spent in tasks",
        top=44 + _KNEE_ROW * len(knees),
        plot_height=_EFFICIENCY_HEIGHT,
    )
    lengths = [seconds for curve in curves for seconds, _ in curve.points] + knees
    plot.decades(min(lengths), max(lengths))
    plot.percents("y")
    plot.axes.axhline(HALF, label=f"{HALF:.0%} of the time", **HALF_LINE)
    low, high = plot.axes.get_xlim()
    middle = (low * high) ** 0.5
    rows = _rows(curves, middle)
    for number, curve in enumerate(curves):
        if curve.knee_seconds:
            level = 1 + (20 + _KNEE_ROW * rows.index(curve)) / _EFFICIENCY_HEIGHT
            _knee(plot, curve, number, level, left=curve.knee_seconds > middle)
        plot.curve(curve.points, number, label=f"{curve.workers:,} workers")
        plot.dots(curve.points, number)
    for number, curve in enumerate(curves):
        if curve.half_seconds:
            plot.ring(curve.half_seconds, HALF, number, 13)
    return plot


def _knee(plot: Plot, curve: Curve, number: int, level: float, *, left: bool) -> None:
    """Draws an upright line to a diamond above the axes, and what it is on one of its sides."""
    assert curve.knee_seconds
    colour = SERIES_COLOURS[number]
    ends = [curve.knee_seconds, curve.knee_seconds], [0, level]
    plot.axes.plot(*ends, **{**END, "color": colour})
    plot.diamond(curve.knee_seconds, level, colour)
    plot.axes.annotate(
        f"{curve.workers:,} workers: knee {length(curve.knee_seconds)}",
        (curve.knee_seconds, level),
        xytext=(-13 if left else 13, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        annotation_clip=False,
        bbox={"fc": PAPER, "ec": "none", "pad": 1},
    )


def _rows(curves: Sequence[Curve], middle: float) -> list[Curve]:
    """Sorts curves with a knee from the lowest label up, so that no upright line cuts a label.

    Labels right of the middle extend to the left, so the lines of higher labels are further right.
    Left of the middle it is the other way round.
    """
    known = [(curve.knee_seconds, curve) for curve in curves if curve.knee_seconds]
    known.sort(key=lambda pair: pair[0])
    right = [curve for knee, curve in known if knee > middle]
    left = [curve for knee, curve in known if knee <= middle]
    return [*right, *reversed(left)]


@drawing()
def latency(groups: Mapping[str, Sequence[PlottedRun]]) -> Plot:
    """Draws what dispatch added to a task: median and 99th percentile, one row for each run."""
    series = [each for group in groups.values() for each in group]
    words = [
        f"{name}, {each.label}: {_ms(latency.p50)} and {_ms(latency.p99)} ms"
        for name, group in groups.items()
        for each in group
        for latency in (each.run.dispatch_latency_ms,)
    ]
    plot = Plot.of_rows(
        f"Latency of dispatch, median and 99th percentile. {'; '.join(words)}.",
        len(series),
        left=160,
        right=122,
    )
    pairs = [each.run.dispatch_latency_ms for each in series]
    low, high = min(pair.p50 for pair in pairs), max(pair.p99 for pair in pairs)
    plot.decades(max(0.01, low), max(0.01, high))
    row = 0.5
    for name, group in groups.items():
        plot.beside(row, name)
        for each in group:
            low, high = each.run.dispatch_latency_ms.p50, each.run.dispatch_latency_ms.p99
            low, high = max(0.01, low), max(0.01, high)
            plot.span(low, high, row, each.number)
            plot.dots([(low, row)], each.number, 11)
            plot.ring(high, row, each.number)
            plot.beside(row, f"{_ms(low)} / {_ms(high)}", right=True)
            row += 1
    return plot


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.1f}" if milliseconds < 100 else f"{milliseconds:,.0f}"


def _over_time(alt: str, series: Sequence[PlottedRun], y_label: str) -> Plot:
    """Makes axes up to the end of the longest run, or the earliest possible end of the first."""
    plot = Plot(alt, x_label="seconds since submission", y_label=y_label)
    plot.numbers("x", _longest(series))
    return plot


def _longest(series: Sequence[PlottedRun]) -> float:
    limit = series[0].limit
    return max(limit.seconds if limit else 0.0, *(_edges(each)[-1] for each in series))


def _earliest_end(plot: Plot, series: PlottedRun) -> None:
    if series.limit:
        label = f"earliest possible end: {series.limit.seconds:,.1f} s"
        plot.axes.axvline(series.limit.seconds, label=label, **END)


def _edges(series: PlottedRun) -> list[float]:
    """The edges of a run's bins, in seconds."""
    curves = _timeline(series)
    return [edge * curves.bin_seconds for edge in range(len(curves.running) + 1)]


def _timeline(series: PlottedRun) -> Timeline:
    assert series.run.timeline is not None
    return series.run.timeline


def _alt(what: str, series: Sequence[PlottedRun]) -> str:
    each = "; ".join(
        f"{s.label}: {s.run.tasks_per_second:,.0f} tasks a second over "
        f"{s.run.makespan_seconds:,.1f} s on {s.run.size} workers"
        for s in series
    )
    return f"{what}. {each}."


def _in_words(curve: Curve) -> str:
    points = ", ".join(f"{share:.0%} at {length(seconds)}" for seconds, share in curve.points)
    knee = f"; knee at {length(curve.knee_seconds)}" if curve.knee_seconds else ""
    return f"{curve.workers:,} workers: {points}{knee}; half of the time at {curve.text_of(HALF)}."
