"""The table of a sweep beside 2009: with colour on a terminal, aligned text anywhere else."""

from __future__ import annotations

from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from kestrelctl.bench.bench_result import PLAIN, BenchResult, BenchRun
from kestrelctl.bench.efficiency import HALF, MOST, curves, length
from kestrelctl.bench.wording import BEYOND_LIMIT, share_of_limit

COLUMNS = (
    "sleep",
    "tasks",
    "workers",
    "makespan",
    "tasks/s",
    "of limit",
    "lost",
    "dup",
    "p50/99 ms",
    "2009",
    "faster",
)

_WIDEST = 120
_OF = {"workers": "busy", "spawn": "spawn"}


def rows(result: BenchResult) -> list[list[str]]:
    """One row of cells per run, in the order of `COLUMNS`.

    "of limit" is the share of the larger bound in the makespan: of the machine's bare process-start
    rate ("spawn", as a rule for sleep 0), or of the workers' time ("busy": the utilisation).
    "2009" is the rate of then, which is fair to any number of tasks, and "faster" the ratio to it.
    The cells of a sweep are not put beside 2009, which had all its workers.
    """
    return [_row(result, run) for run in result.runs]


def _row(result: BenchResult, run: BenchRun) -> list[str]:
    limit = result.limit(run)
    reference, faster = (None, None) if result.sweep else (run.reference, run.times_faster)
    latency, rate = run.dispatch_latency_ms, run.tasks_per_second
    return [
        run.sleep,
        f"{run.jobs:,}",
        f"{run.workers:,}",
        f"{run.makespan_seconds:,.1f} s",
        f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.1f}",
        f"{share_of_limit(limit.seconds / run.makespan_seconds)} {_OF[limit.of]}" if limit else "-",
        f"{run.lost:,}",
        f"{run.duplicates:,}",
        f"{latency.p50:.1f}/{latency.p99:.1f}",
        f"{reference.tasks_per_second:,.0f}/s" if reference else "-",
        f"{faster:.2f}x" if faster else "-",
    ]


def headline(result: BenchResult) -> str:
    """The machine in one line."""
    machine = result.machine
    cores = f"{machine.cores} cores ({machine.cpu_model})"
    if result.spawn_limit_per_second is None:
        return f"Kestrel {machine.kestrel}, a given pool, seen from {cores}"
    tasks = "" if result.isolation == PLAIN else f", isolation {result.isolation}"
    starts = f"{result.spawn_limit_per_second:,.0f} processes/s bare{spread(result)}"
    return f"Kestrel {machine.kestrel} on {cores}, which start {starts}{tasks}"


def spread(result: BenchResult) -> str:
    """How far the bare rates lie apart that were measured before, between and after the runs."""
    rates = result.spawn_rates_per_second
    if len(rates) < 2:
        return ""
    return f" (best of {len(rates)}, the lowest {min(rates):,.0f})"


def text_table(result: BenchResult) -> str:
    """The table as plain text, columns right-aligned, without a final newline."""
    lines = [list(COLUMNS), *rows(result)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def knee_lines(result: BenchResult) -> list[str]:
    """A sentence for each number of workers of a sweep: its knee, and from where on it is busy."""
    return [
        f"{curve.workers:,} workers: knee "
        + (length(curve.knee_seconds) if curve.knee_seconds else "unknown (no sleep 0)")
        + "; measured: "
        + ", ".join(f"{share:.0%} busy at {curve.text_of(share)}" for share in (HALF, MOST))
        for curve in (curves(result.runs) if result.sweep else [])
    ]


def notes(result: BenchResult) -> list[str]:
    """What a reader of the table has to know: shares above 100 %, and that runs are missing."""
    beyond = ", ".join(dict.fromkeys(f"sleep {run.sleep}" for run in result.beyond_limit()))
    found = [f"{beyond}: {BEYOND_LIMIT}"] if beyond else []
    return [*found, *([f"ended early by {result.ended_early}"] if result.ended_early else [])]


def rich_table(result: BenchResult) -> Table:
    """The table for a terminal; lost and duplicate tasks stand out in red."""
    table = Table(box=SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for column in COLUMNS:
        style = {"tasks/s": "bold", "faster": "bold green", "2009": "dim"}.get(column, "")
        table.add_column(column, justify="right", style=style, no_wrap=True)
    wrong = {COLUMNS.index("lost"), COLUMNS.index("dup")}
    for cells in rows(result):
        marked = (
            f"[bold red]{cell}[/]" if index in wrong and cell != "0" else cell
            for index, cell in enumerate(cells)
        )
        table.add_row(*marked)
    return table


def print_result(result: BenchResult, stream: TextIO) -> None:
    """Prints the headline and the table, with colour if `stream` is a terminal."""
    console = Console(file=stream, highlight=False)
    if console.is_terminal:
        console.width = max(console.width, _WIDEST)  # a wrapped line is better than a cropped cell
        console.print(headline(result), style="bold", markup=False)
        console.print(rich_table(result))
    else:
        stream.write(f"{headline(result)}\n{text_table(result)}\n")
    for line in (*knee_lines(result), *notes(result)):
        stream.write(f"{line}\n")
