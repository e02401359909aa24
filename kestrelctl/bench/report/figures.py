"""The figures of the report page: each from one or more results, beside 2009 where it can be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from kestrelctl.bench.knee import HALF, Curve, length
from kestrelctl.bench.report.curves import Timeline
from kestrelctl.bench.report.svg import (
    SERIES_COLOURS,
    WIDTH,
    Plot,
    Scale,
    decades,
    labelled,
    ticks,
    written_out,
)
from kestrelctl.bench.result import BenchRun, Limit

PERCENT = [(share / 100, f"{share}%") for share in (0, 20, 40, 60, 80, 100)]
#: How many curves can be told apart by colour and dash; 2009 and the limits have their own.
MOST_SERIES = len(SERIES_COLOURS)
#: What the axis of task lengths says.
LENGTHS = "length of a task, seconds"
_ROW = 28
#: So far apart the labels of an axis must be not to touch each other, in a narrow window too.
_LABEL_WIDTH = 78


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


def completed(series: Sequence[PlottedRun]) -> str:
    """Tasks that have ended so far over the seconds of each run, thin those started so far, and
    upright the earliest possible end of the first.
    """
    first = series[0].run
    y_ticks = labelled(ticks(max(each.run.jobs for each in series)))
    plot = _over_time(
        _alt(f"Tasks completed over the course of the run, sleep {first.sleep}", series),
        series,
        y_ticks,
        "tasks completed",
    )
    if first.reference:
        end = min(plot.x.high, first.jobs / first.reference.tasks_per_second)
        reached = end * first.reference.tasks_per_second
        plot.polyline(((0.0, 0.0), (end, reached)), "line then")
    _earliest_end(plot, series[0])
    for each in reversed(series):  # the first one on top
        curves = _timeline(each)
        plot.stairs(_edges(each), list(accumulate(curves.dispatched)), f"{each.kind} begun")
        plot.stairs(_edges(each), list(accumulate(curves.finished)), each.kind)
    return plot.markup()


def running(series: Sequence[PlottedRun]) -> str:
    """Workers busy over the seconds of each run; tasks running, if they have no length. Upright is
    the earliest possible end of the first.
    """
    first = series[0].run
    has_length = first.utilisation > 0
    most = max(max(_timeline(each).running) for each in series)
    label = "share of workers busy" if has_length else "tasks running"
    plot = _over_time(
        _alt(f"{label} over the course of the run, sleep {first.sleep}", series),
        series,
        PERCENT if has_length else labelled(ticks(most)),
        label,
    )
    if first.reference and has_length:
        plot.across(min(1.0, first.reference.utilisation), "line then")
    _earliest_end(plot, series[0])
    for each in reversed(series):
        curves = _timeline(each)
        unit = each.run.workers if has_length else 1
        values = [min(plot.y.high, value / unit) for value in curves.running]
        if len(series) == 1:
            plot.area(_edges(each), values, each.kind)
        plot.stairs(_edges(each), values, each.kind)
    return plot.markup()


def dispatched(series: Sequence[PlottedRun]) -> str:
    """Tasks started a second over the seconds of each run, the limit of the first, and 2009."""
    return _rates("dispatched", series, lambda curves: curves.dispatched)


def finished(series: Sequence[PlottedRun]) -> str:
    """Tasks finished a second, likewise; of a run alone the rate of each bin is the area behind."""
    return _rates("finished", series, lambda curves: curves.finished, bins=len(series) == 1)


def _rates(
    what: str,
    series: Sequence[PlottedRun],
    counts: Callable[[Timeline], list[int]],
    *,
    bins: bool = False,
) -> str:
    first = series[0]
    limit = first.run.jobs / first.limit.seconds if first.limit else 0.0
    then = first.run.reference.tasks_per_second if first.run.reference else 0.0
    smooth = [
        _timeline(each).per_second(counts(_timeline(each)), each.run.window_seconds)
        for each in series
    ]
    curves = _timeline(first)
    behind = curves.per_second(counts(curves)) if bins else smooth[0]
    plot = _over_time(
        _alt(f"Tasks {what} a second over the course of the run, sleep {first.run.sleep}", series)
        + (f" In 2009: {then:,.0f} a second." if then else ""),
        series,
        labelled(ticks(max(limit, then, max(behind), *map(max, smooth)))),
        f"tasks {what} per second",
    )
    if limit:
        plot.across(limit, "line bound")
    if then:
        plot.across(then, "line then")
    if len(series) == 1:
        plot.area(_edges(first), behind, first.kind)
    for each, values in reversed(list(zip(series, smooth, strict=True))):
        plot.stairs(_edges(each), values, each.kind)
    return plot.markup()


def in_figures(curves: Sequence[Curve]) -> list[Sequence[Curve]]:
    """The curves of each figure: as many as can be told apart."""
    return [curves[first : first + MOST_SERIES] for first in range(0, len(curves), MOST_SERIES)]


def lengths_axis(curves: Sequence[Curve]) -> list[tuple[float, str]]:
    """The ticks of an axis on which all their task lengths and knees are, in seconds."""
    lengths = [seconds for curve in curves for seconds, _ in curve.points]
    lengths += [curve.knee_seconds for curve in curves if curve.knee_seconds]
    return [(tick, written_out(tick)) for tick in decades(min(lengths), max(lengths))]


def efficiency(curves: Sequence[Curve]) -> str:
    """Utilisation against task length, one curve for each number of workers, with its knee.

    Diamonds mark the knees on top, each joined to its curve; rings mark where half was measured.
    """
    x_ticks = lengths_axis(curves)
    top = 44 + 22 * sum(curve.knee_seconds is not None for curve in curves)
    plot = Plot.with_axes(
        "Efficiency against task length. " + " ".join(map(_in_words, curves)),
        x_ticks=x_ticks,
        y_ticks=PERCENT,
        x_label=LENGTHS,
        y_label="",
        x_range=(x_ticks[0][0], x_ticks[-1][0]),
        logarithmic=True,
        top=top,
        plot_height=270,
    )
    plot.text(0, 14, "share of the workers' time spent in tasks", "soft")
    plot.across(0.5, "line half")
    rows = _rows(curves, (plot.x.low * plot.x.high) ** 0.5)
    for number, curve in enumerate(curves):
        if curve.knee_seconds:
            level = 1 + (20 + 22 * rows.index(curve)) / (plot.y.start - plot.y.end)
            plot.upright(curve.knee_seconds, 0, level, f"line thin s{number}")
            plot.diamond(curve.knee_seconds, level, f"s{number}")
            left = plot.x(curve.knee_seconds) > WIDTH / 2
            plot.text(
                plot.x(curve.knee_seconds) + (-13 if left else 13),
                plot.y(level) + 5,
                f"{curve.workers:,} workers: knee {length(curve.knee_seconds)}",
                "halo end" if left else "halo",
            )
        plot.polyline(curve.points, f"curve s{number}")
        for seconds, share in curve.points:
            plot.dot(seconds, share, f"s{number}")
    for number, curve in enumerate(curves):
        if curve.half_seconds:
            plot.dot(curve.half_seconds, 0.5, f"open s{number}", radius=6.5)
    return plot.markup()


def _rows(curves: Sequence[Curve], middle: float) -> list[Curve]:
    """Curves with a knee from the lowest label up, so that no upright line cuts a label.

    Labels right of the middle extend to the left: there, lines of higher ones are further right.
    Left of it, it is the other way round.
    """
    known = [(curve.knee_seconds, curve) for curve in curves if curve.knee_seconds]
    known.sort(key=lambda pair: pair[0])
    right = [curve for knee, curve in known if knee > middle]
    left = [curve for knee, curve in known if knee <= middle]
    return [*right, *reversed(left)]


def latency(groups: Mapping[str, Sequence[PlottedRun]]) -> str:
    """What dispatch added to a task: median and 99th percentile, a row for each run of a group."""
    series = [each for group in groups.values() for each in group]
    pairs = [each.run.dispatch_latency_ms for each in series]
    span = decades(
        max(0.01, min(pair.p50 for pair in pairs)), max(0.01, *(pair.p99 for pair in pairs))
    )
    bottom = 8 + _ROW * len(series)
    x = Scale(span[0], span[-1], 160, WIDTH - 122, logarithmic=True)
    plot = Plot("", x, Scale(0, len(series), 8, bottom), bottom + 26)
    every = ceil(_LABEL_WIDTH / (x(span[1]) - x(span[0])))
    for place, tick in enumerate(span):
        plot.upright(tick, 0, len(series), "grid")
        if place % every == 0:
            plot.text(x(tick), bottom + 20, written_out(tick), "middle")
    words = []
    row = 0.5
    for name, group in groups.items():
        plot.text(0, plot.y(row) + 5, name)
        for each in group:
            low, high = each.run.dispatch_latency_ms.p50, each.run.dispatch_latency_ms.p99
            plot.polyline(((low, row), (high, row)), f"curve thick {each.kind}")
            plot.dot(low, row, each.kind, radius=5.5)
            plot.dot(high, row, f"open {each.kind}", radius=5.5)
            plot.text(WIDTH, plot.y(row) + 5, f"{_ms(low)} / {_ms(high)}", "end")
            words.append(f"{name}, {each.label}: {_ms(low)} and {_ms(high)} ms")
            row += 1
    plot.alt = f"Latency of dispatch, median and 99th percentile. {'; '.join(words)}."
    return plot.markup()


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:,.1f}" if milliseconds < 100 else f"{milliseconds:,.0f}"


def _over_time(
    alt: str, series: Sequence[PlottedRun], y_ticks: Sequence[tuple[float, str]], y_label: str
) -> Plot:
    """Axes over the seconds of the longest run, and to the earliest possible end of the first."""
    limit = series[0].limit
    longest = max(limit.seconds if limit else 0.0, *(_edges(each)[-1] for each in series))
    return Plot.with_axes(
        alt,
        x_ticks=[tick for tick in labelled(ticks(longest)) if tick[0] <= longest],
        y_ticks=y_ticks,
        x_label="seconds since submission",
        y_label=y_label,
        x_range=(0.0, longest),
    )


def _earliest_end(plot: Plot, series: PlottedRun) -> None:
    if series.limit:
        plot.upright(series.limit.seconds, plot.y.low, plot.y.high, "line thin bound")


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
