"""The curves of a run as PNG images, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from itertools import cycle
from typing import TYPE_CHECKING, Any

from kestrelctl.bench.bench_result import BenchRun, Limit
from kestrelctl.bench.curves import Timeline
from kestrelctl.bench.efficiency import Curve, length
from kestrelctl.errors import MissingTool

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE_INCHES = (5.8, 3.9)
_DOTS_PER_INCH = 180


_PAPER, _INK, _FAINT = "#ffffff", "#23282d", "#dfe3e6"
_FINISHED, _DISPATCHED, _BOUND = "#0072b2", "#9aa5ad", "#d55e00"
#: Of curves in one plot, with marks that differ too.
_SERIES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "^"), ("#b3558f", "v"), ("#8a6d00", "D"))


def running_png(run: BenchRun, curves: Timeline, limit: Limit | None) -> bytes:
    """Tasks running over time, the number of workers, and the earliest possible end."""
    with _style():
        figure, axes = _axes(f"sleep {run.sleep}: tasks running", "tasks running")
        edges = _edges(curves)
        axes.stairs(curves.running, edges, fill=True, color=_FINISHED, alpha=0.22, lw=0)
        axes.stairs(curves.running, edges, color=_FINISHED, lw=1.4, label="running")
        if limit and limit.of == "workers":
            label = f"{run.workers:,} workers"
            axes.axhline(run.workers, color=_BOUND, lw=1.2, ls="--", label=label)
        if limit:
            label = f"earliest possible end: {limit.seconds:,.1f} s"
            axes.axvline(limit.seconds, color=_BOUND, lw=1.2, ls=":", label=label)
        return _png(figure, axes)


def rate_png(run: BenchRun, curves: Timeline, limit: Limit | None) -> bytes:
    """Tasks dispatched and finished a second over time, the highest lasting rate, and 2009's.

    Equal tasks come in waves, so the lines are means over at least one sleep time; the rate of each
    single bin is the area behind them.
    """
    with _style():
        figure, axes = _axes(f"sleep {run.sleep}: dispatched and finished", "tasks per second")
        edges = _edges(curves)
        window = run.window_seconds
        each_bin = curves.per_second(curves.finished)
        axes.stairs(each_bin, edges, fill=True, color=_FINISHED, alpha=0.22, lw=0)
        for counts, colour, what in (
            (curves.dispatched, _DISPATCHED, "dispatched"),
            (curves.finished, _FINISHED, "finished"),
        ):
            mean = curves.per_second(counts, window)
            label = f"{what}, mean of {window:.3g} s"
            axes.stairs(mean, edges, baseline=None, color=colour, lw=1.6, label=label)
        if limit:
            rate = run.jobs / limit.seconds
            what = "spawn limit" if limit.of == "spawn" else "worker limit"
            axes.axhline(rate, color=_BOUND, lw=1.2, ls="--", label=f"{what}: {rate:,.0f}/s")
        if run.reference:
            rate = run.reference.tasks_per_second
            axes.axhline(rate, color=_INK, lw=1.2, ls=":", label=f"2009: {rate:,.0f}/s")
        return _png(figure, axes)


def efficiency_png(curves: Sequence[Curve]) -> bytes:
    """Utilisation against task length for each number of workers, knees as upright lines."""
    with _style():
        figure, axes = _axes("efficiency against task length", "workers' time in tasks, %")
        for curve, (colour, mark) in zip(curves, cycle(_SERIES), strict=False):
            label = f"{curve.workers:,} workers"
            if curve.knee_seconds:
                axes.axvline(curve.knee_seconds, color=colour, lw=1.2, ls=":")
                label += f", knee {length(curve.knee_seconds)}"
            seconds, shares = zip(*curve.points, strict=True)
            percents = [100 * share for share in shares]
            axes.plot(seconds, percents, color=colour, marker=mark, lw=1.6, label=label)
        axes.axhline(50, color=_INK, lw=0.8, ls="--")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda seconds, _: length(seconds))
        axes.set_xlabel("length of a task")
        axes.set_ylim(top=102)
        return _png(figure, axes)


def require() -> Any:
    """What draws the plots.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingTool(
            "matplotlib is not installed, so no report can be drawn",
            cause=str(error),
            hint="pip install 'kestrelctl[bench]'",
        ) from error
    return mpl


def _style() -> Any:
    """matplotlib's settings for a plot, for use in a `with`.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    return require().rc_context(
        {
            "figure.facecolor": _PAPER,
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
            "font.size": 11,
            "legend.frameon": False,
        }
    )


def _axes(title: str, ylabel: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, loc="left", fontweight="bold", fontsize=12, pad=10)
    axes.set_xlabel("seconds since submission")
    axes.set_ylabel(ylabel)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(axis="y")
    return figure, axes


def _edges(curves: Timeline) -> list[float]:
    return [bin_ * curves.bin_seconds for bin_ in range(len(curves.running) + 1)]


def _png(figure: Figure, axes: Axes) -> bytes:
    if axes.get_xscale() == "linear":
        axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, fontsize=10)
    data = BytesIO()
    figure.savefig(data, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return data.getvalue()
