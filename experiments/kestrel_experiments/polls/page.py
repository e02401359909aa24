"""What polling costs, as plots and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kestrel_experiments.polls.result import MOST_CLIENTS, PollResult, PollRun, growth
from kestrelctl.bench.report.files import write_files
from kestrelctl.bench.report.svg import SERIES_COLOURS, Plot, labelled, picture, ticks

COLUMNS = ("clients", "reply, kB", "limit/s", "mean kB/s", "most kB/s", "polls waiting", "CPU, %",
           "memory, MB")  # fmt: skip


def rows(runs: Sequence[PollRun]) -> list[list[str]]:
    """A row for each run, as texts."""
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
    """What the growth comes to, in words; nothing if there are too few runs."""
    found = []
    units = (("processor", "% of a core", 100.0), ("memory", "MB", 1e-6))
    for (what, unit, factor), line in zip(units, growth(runs), strict=True):
        if line is not None:
            slope = line.slope * factor * 100
            found.append(f"{what}: {slope:.2f} {unit} for 100 clients, R² {line.r2:.3f}")
    return found


def network_plot(runs: Sequence[PollRun]) -> str:
    """What came in, second by second.

    Args:
        runs: no more than can be told apart (`_in_plots`).
    """
    longest = max(len(run.received_bytes) for run in runs)
    most = max(run.most_in_a_second for run in runs) / 1000
    plot = Plot.with_axes(
        "Bytes of replies that the manager received in each second",
        x_ticks=labelled(ticks(longest)),
        y_ticks=labelled(ticks(most)),
        x_label="seconds",
        y_label="kB in a second",
        x_range=(0, longest),
    )
    for number, run in enumerate(runs):
        edges = list(range(len(run.received_bytes) + 1))
        plot.stairs(edges, [each / 1000 for each in run.received_bytes], f"s{number}")
        limit = "unlimited" if run.limit_per_second is None else f"{run.limit_per_second:g}/s"
        words = f"{run.clients} clients, {run.reply_bytes / 1000:g} kB, {limit}"
        plot.text(90, 60 + 20 * number, words, f"s{number}")
    return plot.markup()


def growth_plot(runs: Sequence[PollRun]) -> str:
    """The manager's processor by how many clients it polls, without a limit."""
    free = sorted((r.clients, 100 * r.cpu_ratio) for r in runs if r.limit_per_second is None)
    plot = Plot.with_axes(
        "The manager's processor by clients",
        x_ticks=labelled(ticks(free[-1][0])),
        y_ticks=labelled(ticks(max(y for _, y in free))),
        x_label="clients",
        y_label="% of a core",
        x_range=(0, free[-1][0]),
    )
    for x, y in free:
        plot.dot(x, y, "s0")
    line, _ = growth(runs)
    if line is not None:
        ends = (free[0][0], min(MOST_CLIENTS, free[-1][0]))
        plot.polyline([(x, 100 * (line.intercept + line.slope * x)) for x in ends], "line s0")
    return plot.markup()


def write_poll_report(directory: Path, result: PollResult) -> list[Path]:
    """Writes `polls.json` and plots as SVG; returns them, the data first.

    Raises:
        UsageError: they cannot be written.
    """
    files = {"polls.json": msgspec.json.format(msgspec.json.encode(result))}
    for number, shown in enumerate(_in_plots(_to_show(result.runs)), 1):
        name = "polls-network" if number == 1 else f"polls-network-{number}"
        files[f"{name}.svg"] = picture(network_plot(shown)).encode()
    if any(run.limit_per_second is None for run in result.runs):
        files["polls-growth.svg"] = picture(growth_plot(result.runs)).encode()
    return write_files(directory, files)


def _in_plots(runs: Sequence[PollRun]) -> list[Sequence[PollRun]]:
    """The runs of each plot: as many as can be told apart."""
    most = len(SERIES_COLOURS)
    return [runs[first : first + most] for first in range(0, len(runs), most)]


def _to_show(runs: Sequence[PollRun]) -> list[PollRun]:
    """Those with the most clients: what a limit does is seen there."""
    limited = [run.clients for run in runs if run.limit_per_second is not None]
    most = max(limited or [run.clients for run in runs])
    return [run for run in runs if run.clients == most]
