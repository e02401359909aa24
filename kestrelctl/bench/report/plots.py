"""The curves of a run as images for slides, drawn with matplotlib: PNG, SVG and PDF, 16:9.

Each says on which machine and when it was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from kestrelctl.bench.knee import HALF, Curve, length
from kestrelctl.bench.machine import BenchMachine
from kestrelctl.bench.report import figures
from kestrelctl.bench.report.curves import Timeline
from kestrelctl.bench.report.svg import SERIES_COLOURS
from kestrelctl.bench.result import BenchRun, Limit
from kestrelctl.missing_package import missing_package

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: 16:9, as slides are; as pixels 1,920 by 1,080.
_SIZE_INCHES = (9.6, 5.4)
_DOTS_PER_INCH = 200
#: The share of the height that is for the line which says where and when it was measured.
_FOOT = 0.045

#: What nothing but a format's own metadata would say: the same data give the same file.
_FORMATS: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}

_PAPER, _INK, _SOFT, _FAINT = "#ffffff", "#23282d", "#56606a", "#dfe3e6"
_FINISHED, _DISPATCHED, _BOUND = "#0072b2", "#9aa5ad", "#d55e00"
#: Of curves in one plot, with marks that differ too.
_SERIES = tuple(zip(SERIES_COLOURS, "os^vDP", strict=True))


def completed(
    run: BenchRun, curves: Timeline, limit: Limit | None, machine: BenchMachine
) -> Mapping[str, bytes]:
    """Tasks dispatched and completed so far over time, and the earliest possible end."""
    with _style():
        figure, axes = _axes(f"{_name(run)}: tasks completed", "tasks")
        edges = _edges(curves)
        for counts, colour, what, width in (
            (curves.dispatched, _DISPATCHED, "dispatched", 1.2),
            (curves.finished, _FINISHED, "completed", 2.0),
        ):
            values = list(accumulate(counts))
            axes.stairs(values, edges, baseline=None, color=colour, lw=width, label=what)
        if run.reference:
            rate = run.reference.tasks_per_second
            end = min(edges[-1], run.jobs / rate)
            label = f"2009, mean: {rate:,.0f}/s"
            axes.plot([0, end], [0, end * rate], color=_INK, lw=1.2, ls=":", label=label)
        _earliest_end(axes, limit)
        return _images(figure, axes, machine)


def running(
    run: BenchRun, curves: Timeline, limit: Limit | None, machine: BenchMachine
) -> Mapping[str, bytes]:
    """Tasks running over time, the number of workers, those of 2009 that were busy on average, and
    the earliest possible end.
    """
    with _style():
        figure, axes = _axes(f"{_name(run)}: tasks running", "tasks running")
        edges = _edges(curves)
        axes.stairs(curves.running, edges, fill=True, color=_FINISHED, alpha=0.22, lw=0)
        axes.stairs(curves.running, edges, color=_FINISHED, lw=1.6, label="running")
        if limit and limit.of == "workers":
            label = f"{run.size} workers"
            axes.axhline(run.workers, color=_BOUND, lw=1.2, ls="--", label=label)
        if run.reference and run.utilisation > 0:
            then = min(1.0, run.reference.utilisation)
            label = f"2009, mean: {then:.0%} of the workers"
            axes.axhline(then * run.workers, color=_INK, lw=1.2, ls=":", label=label)
        _earliest_end(axes, limit)
        return _images(figure, axes, machine)


def rate(
    run: BenchRun, curves: Timeline, limit: Limit | None, machine: BenchMachine
) -> Mapping[str, bytes]:
    """Tasks dispatched and finished a second over time, the highest lasting rate, and 2009's.

    Equal tasks come in waves, so the lines are means over at least one sleep time; the rate of each
    single bin is the area behind them.
    """
    with _style():
        figure, axes = _axes(f"{_name(run)}: dispatched and finished", "tasks per second")
        edges = _edges(curves)
        window = run.window_seconds
        each_bin = curves.per_second(curves.finished)
        label = f"finished, each {curves.bin_seconds:.3g} s"
        axes.stairs(each_bin, edges, fill=True, color=_FINISHED, alpha=0.22, lw=0, label=label)
        for counts, colour, what in (
            (curves.dispatched, _DISPATCHED, "dispatched"),
            (curves.finished, _FINISHED, "finished"),
        ):
            mean = curves.per_second(counts, window)
            label = f"{what}, mean of {window:.3g} s"
            axes.stairs(mean, edges, baseline=None, color=colour, lw=1.8, label=label)
        if limit:
            best = run.jobs / limit.seconds
            what = "spawn limit" if limit.of == "spawn" else "worker limit"
            axes.axhline(best, color=_BOUND, lw=1.2, ls="--", label=f"{what}: {best:,.0f}/s")
        if run.reference:
            then = run.reference.tasks_per_second
            axes.axhline(then, color=_INK, lw=1.2, ls=":", label=f"2009, mean: {then:,.0f}/s")
        return _images(figure, axes, machine)


def efficiency(curves: Sequence[Curve], machine: BenchMachine) -> Mapping[str, bytes]:
    """Utilisation against task length for each number of workers, knees as upright lines.

    Args:
        curves: no more than can be told apart (`figures.in_figures`).
    """
    with _style():
        figure, axes = _axes("efficiency against task length", "workers' time in tasks, %")
        for curve, (colour, mark) in zip(curves, _SERIES, strict=False):
            label = f"{curve.workers:,} workers"
            seconds, shares = zip(*curve.points, strict=True)
            percents = [100 * share for share in shares]
            (line,) = axes.plot(seconds, percents, color=colour, marker=mark, lw=1.8, label=label)
            line.set(clip_on=False, zorder=3)  # marks at the edge are whole
        for curve, (colour, _) in zip(curves, _SERIES, strict=False):
            if curve.knee_seconds:
                label = f"{curve.workers:,} workers: knee {length(curve.knee_seconds)}"
                axes.axvline(curve.knee_seconds, color=colour, lw=1.2, ls=":", label=label)
        half = f"{HALF:.0%} of the time"
        axes.axhline(100 * HALF, color=_INK, lw=0.8, ls="--", label=half)
        ticks, labels = zip(*figures.lengths_axis(curves), strict=True)
        axes.set_xscale("log")
        axes.set_xlim(ticks[0], ticks[-1])
        axes.set_xticks(ticks, labels)
        axes.minorticks_off()  # their labels would be powers of ten
        axes.set_xlabel(figures.LENGTHS)
        axes.set_ylim(top=102)
        return _images(figure, axes, machine)


def _name(run: BenchRun) -> str:
    return f"sleep {run.sleep}, {run.jobs:,} tasks on {run.size} workers"


def _earliest_end(axes: Axes, limit: Limit | None) -> None:
    if limit:
        label = f"earliest possible end: {limit.seconds:,.1f} s"
        axes.axvline(limit.seconds, color=_BOUND, lw=1.2, ls=":", label=label)


def require() -> Any:
    """What draws the plots.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise missing_package(
            "matplotlib is not installed, so no report can be drawn", "matplotlib", cause=str(error)
        ) from error
    return mpl


def _style() -> Any:
    """matplotlib's settings for a plot, for use in a `with`.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    return require().rc_context(
        {
            "svg.hashsalt": "kestrel",
            "figure.facecolor": _PAPER,
            "figure.constrained_layout.w_pad": 0.15,
            "figure.constrained_layout.h_pad": 0.1,
            "axes.facecolor": _PAPER,
            "axes.edgecolor": _FAINT,
            "axes.labelcolor": _INK,
            "axes.titlecolor": _INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "grid.color": _FAINT,
            "grid.linewidth": 0.7,
            "text.color": _INK,
            "xtick.color": _INK,
            "ytick.color": _INK,
            "xtick.major.size": 0,
            "ytick.major.size": 0,
            "xtick.major.pad": 9,
            "ytick.major.pad": 7,
            "font.size": 11,
            "legend.frameon": False,
        }
    )


def _axes(title: str, ylabel: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    figure.subfigures(2, 1, height_ratios=(1 - _FOOT, _FOOT))
    axes = figure.subfigs[0].subplots()
    axes.set_title(title, loc="left", fontweight="bold", fontsize=12, pad=10)
    axes.set_xlabel("seconds since submission")
    axes.set_ylabel(ylabel)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_major_formatter(lambda seconds, _: _written_out(seconds))
    axes.grid(axis="y")
    return figure, axes


def _written_out(seconds: float) -> str:
    """A time at an axis, without an exponent however long or short a run is."""
    return f"{seconds:,.9f}".rstrip("0").rstrip(".")


def _edges(curves: Timeline) -> list[float]:
    return [bin_ * curves.bin_seconds for bin_ in range(len(curves.running) + 1)]


def _images(figure: Figure, axes: Axes, machine: BenchMachine) -> Mapping[str, bytes]:
    """The drawing in each format, by the ending of its file."""
    if axes.get_xscale() == "linear":
        axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    drawing, foot = figure.subfigs
    drawing.legend(loc="outside lower center", ncols=3, fontsize=10)
    foot.text(
        0.99,
        0.5,
        f"Kestrel {machine.kestrel}, {machine.date[:10]}, {machine.cores} cores "
        f"({machine.cpu_model})",
        ha="right",
        va="center",
        fontsize=8,
        color=_SOFT,
    )
    found = {}
    for ending, metadata in _FORMATS.items():
        data = BytesIO()
        figure.savefig(data, format=ending, dpi=_DOTS_PER_INCH, metadata=metadata)
        found[ending] = data.getvalue()
    return found
