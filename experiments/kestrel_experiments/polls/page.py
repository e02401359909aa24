"""The costs of polling, as plots and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kestrel_experiments.polls.result import MOST_CLIENTS, PollResult, PollRun, growth
from kestrelctl.bench.report.files import write_files
from kestrelctl.bench.report.plot import SERIES_COLOURS, Plot, drawing

COLUMNS = ("clients", "reply, kB", "limit/s", "mean kB/s", "most kB/s", "polls waiting", "CPU, %",
           "memory, MB")  # fmt: skip


def rows(runs: Sequence[PollRun]) -> list[list[str]]:
    """Makes a row for each run, as texts."""
    return [
        [
            f"{run.clients:,}",
            f"{run.reply_bytes / 1000:g}",
            "none" if run.limit_per_second is None else f"{run.limit_per_second:g}",
            f"{run.mean_in_a_second / 1000:,.0f}",
            f"{run.most_in_a_second / 1000:,.0f}",
            f"{run.most_waiting:,}",
            f"{100 * run.cpu_ratio:.1f}",
            f"{run.rss_bytes / 1e6:,.0f}",
        ]
        for run in runs
    ]


def sentences(runs: Sequence[PollRun]) -> list[str]:
    """Tells the growth in words; nothing if there are too few runs."""
    found = []
    units = (("processor", "% of a core", 100.0), ("memory", "MB", 1e-6))
    for (what, unit, factor), line in zip(units, growth(runs), strict=True):
        if line is not None:
            slope = line.slope * factor * 100
            found.append(f"{what}: {slope:.2f} {unit} for 100 clients, R² {line.r2:.3f}")
    return found


@drawing()
def network_plot(runs: Sequence[PollRun]) -> Plot:
    """Plots the bytes of replies that came in, second by second.

    Args:
        runs: no more than can be told apart (`_in_plots`).
    """
    longest = max(len(run.received_bytes) for run in runs)
    plot = Plot(
        "Bytes of replies that the manager received in each second",
        x_label="seconds",
        y_label="kB in a second",
    )
    for number, run in enumerate(runs):
        edges = list(range(len(run.received_bytes) + 1))
        limit = "unlimited" if run.limit_per_second is None else f"{run.limit_per_second:g}/s"
        words = f"{run.clients} clients, {run.reply_bytes / 1000:g} kB, {limit}"
        plot.stairs(edges, [each / 1000 for each in run.received_bytes], number, label=words)
    plot.numbers("x", longest)
    plot.numbers("y")
    plot.legend()
    return plot


@drawing()
def growth_plot(runs: Sequence[PollRun]) -> Plot:
    """Plots the manager's use of the processor by the number of clients, without a limit."""
    free = sorted((r.clients, 100 * r.cpu_ratio) for r in runs if r.limit_per_second is None)
    plot = Plot("The manager's processor by clients", x_label="clients", y_label="% of a core")
    plot.dots(free, 0)
    line, _ = growth(runs)
    if line is not None:
        ends = (free[0][0], min(MOST_CLIENTS, free[-1][0]))
        plot.curve([(x, 100 * (line.intercept + line.slope * x)) for x in ends], 0)
    plot.numbers("x", free[-1][0])
    plot.numbers("y")
    return plot


def write_poll_report(directory: Path, result: PollResult) -> list[Path]:
    """Writes `polls.json` and plots as SVG; returns them, the data first.

    Raises:
        UsageError: they cannot be written.
    """
    files = {"polls.json": msgspec.json.format(msgspec.json.encode(result))}
    for number, shown in enumerate(_in_plots(_to_show(result.runs)), 1):
        name = "polls-network" if number == 1 else f"polls-network-{number}"
        files[f"{name}.svg"] = network_plot(shown).picture()
    if any(run.limit_per_second is None for run in result.runs):
        files["polls-growth.svg"] = growth_plot(result.runs).picture()
    return write_files(directory, files)


def _in_plots(runs: Sequence[PollRun]) -> list[Sequence[PollRun]]:
    """Divides the runs among plots: each has as many as can be told apart."""
    most = len(SERIES_COLOURS)
    return [runs[first : first + most] for first in range(0, len(runs), most)]


def _to_show(runs: Sequence[PollRun]) -> list[PollRun]:
    """Picks the runs with the most clients, which show what a limit does."""
    limited = [run.clients for run in runs if run.limit_per_second is not None]
    most = max(limited or [run.clients for run in runs])
    return [run for run in runs if run.clients == most]
