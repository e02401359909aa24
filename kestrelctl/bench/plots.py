"""The curves of a run as PNG images, drawn with matplotlib."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from math import ceil
from typing import TYPE_CHECKING, Any

from kestrelctl.bench.bounds import parse_sleep
from kestrelctl.bench.curves import Timeline
from kestrelctl.bench.result import Limit, Run
from kestrelctl.errors import MissingTool

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE_INCHES = (5.8, 3.9)
_DOTS_PER_INCH = 180


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a plot."""

    paper: str
    ink: str
    faint: str
    finished: str
    dispatched: str
    bound: str


LIGHT = Theme("#ffffff", "#23282d", "#dfe3e6", "#1f6f8b", "#9aa5ad", "#b5482a")
DARK = Theme("#1b2024", "#d5dade", "#353c42", "#5fb3cf", "#7d8890", "#ec8a67")


def running_png(run: Run, curves: Timeline, limit: Limit | None, theme: Theme) -> bytes:
    """Tasks running over time, the number of workers, and the earliest possible end."""
    with _style(theme):
        figure, axes = _axes(f"sleep {run.sleep}: tasks running", "tasks running")
        edges = _edges(curves)
        axes.stairs(curves.running, edges, fill=True, color=theme.finished, alpha=0.22, lw=0)
        axes.stairs(curves.running, edges, color=theme.finished, lw=1.4, label="running")
        if limit and limit.of == "workers":
            label = f"{run.workers:,} workers"
            axes.axhline(run.workers, color=theme.bound, lw=1.2, ls="--", label=label)
        if limit:
            label = f"earliest possible end: {limit.seconds:,.1f} s"
            axes.axvline(limit.seconds, color=theme.bound, lw=1.2, ls=":", label=label)
        return _png(figure, axes)


def rate_png(run: Run, curves: Timeline, limit: Limit | None, theme: Theme) -> bytes:
    """Tasks dispatched and finished a second over time, the highest lasting rate, and 2009's.

    Equal tasks come in waves, so the lines are means over at least one sleep time; the rate of each
    single bin is the area behind them.
    """
    with _style(theme):
        figure, axes = _axes(f"sleep {run.sleep}: dispatched and finished", "tasks per second")
        edges = _edges(curves)
        window = _window_seconds(run, curves)
        each_bin = curves.per_second(curves.finished)
        axes.stairs(each_bin, edges, fill=True, color=theme.finished, alpha=0.22, lw=0)
        for counts, colour, what in (
            (curves.dispatched, theme.dispatched, "dispatched"),
            (curves.finished, theme.finished, "finished"),
        ):
            mean = curves.per_second(counts, window)
            label = f"{what}, mean of {window:.3g} s"
            axes.stairs(mean, edges, baseline=None, color=colour, lw=1.6, label=label)
        if limit:
            rate = run.jobs / limit.seconds
            what = "spawn limit" if limit.of == "spawn" else "worker limit"
            axes.axhline(rate, color=theme.bound, lw=1.2, ls="--", label=f"{what}: {rate:,.0f}/s")
        if run.reference:
            rate = run.reference.tasks_per_second
            axes.axhline(rate, color=theme.ink, lw=1.2, ls=":", label=f"2009: {rate:,.0f}/s")
        return _png(figure, axes)


def _window_seconds(run: Run, curves: Timeline) -> float:
    """The time to average a rate over: a fortieth of the run, in whole waves of equal tasks."""
    wave = parse_sleep(run.sleep).longest or curves.bin_seconds
    return ceil(_edges(curves)[-1] / 40 / wave) * wave


def _style(theme: Theme) -> Any:
    """matplotlib's settings for a theme, for use in a `with`.

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
    return mpl.rc_context(
        {
            "figure.facecolor": theme.paper,
            "axes.facecolor": theme.paper,
            "axes.edgecolor": theme.faint,
            "axes.labelcolor": theme.ink,
            "axes.titlecolor": theme.ink,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.axisbelow": True,
            "grid.color": theme.faint,
            "grid.linewidth": 0.7,
            "text.color": theme.ink,
            "xtick.color": theme.ink,
            "ytick.color": theme.ink,
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
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    figure.legend(loc="outside lower center", ncols=2, fontsize=10)
    data = BytesIO()
    figure.savefig(data, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return data.getvalue()
