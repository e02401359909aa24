"""The table of a bench, row by row: with colour on a terminal, aligned text anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from kestrelctl.bench.knee import HALF, MOST, curves, length
from kestrelctl.bench.report.wording import BEYOND_LIMIT, closing, share_of_limit
from kestrelctl.bench.result import PLAIN, BenchResult, BenchRun

#: Each with the room it gets at least, so that rows can be printed one by one.
_COLUMNS = {
    "sleep": 5,
    "tasks": 7,
    "workers": 7,
    "time": 9,
    "tasks/s": 7,
    "of the limit": 12,
    "lost": 4,
    "twice": 5,
}
_BESIDE_2009 = {"2009": 6, "faster": 12}
COLUMNS = tuple(_COLUMNS)
COLUMNS_WITH_2009 = (*_COLUMNS, *_BESIDE_2009)

_OF = {"workers": "busy", "spawn": "starts"}
_STYLES = {"tasks/s": "bold", "faster": "bold green", "2009": "dim"}


def is_beside_2009(result: BenchResult) -> bool:
    """Whether a run had the workers of 2009. A sweep is not put beside it: it is another question.

    In a pool of few workers with many tasks each, tasks cost less than in one like that of 2009.
    """
    return result.sweep is None and any(run.is_like_2009 for run in result.runs)


def columns(*, with_2009: bool) -> tuple[str, ...]:
    return COLUMNS_WITH_2009 if with_2009 else COLUMNS


def rows(result: BenchResult) -> list[list[str]]:
    """One row of cells per run, in the order of `columns`.

    "of the limit" is the share of the larger bound in the time: of the machine's bare rate of
    process starts ("starts", as a rule for sleep 0), or of the workers' time ("busy": the
    utilisation). "2009" is the rate of then, which is fair to any number of tasks, and "faster" the
    ratio to it, unless arithmetic allows no more.
    """
    with_2009 = is_beside_2009(result)
    return [_row(result, run, with_2009=with_2009) for run in result.runs]


def _row(result: BenchResult, run: BenchRun, *, with_2009: bool) -> list[str]:
    limit = result.limit(run)
    rate = run.tasks_per_second
    cells = [
        run.sleep,
        f"{run.jobs:,}",
        run.size,
        f"{run.makespan_seconds:,.1f} s",
        f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.1f}",
        f"{share_of_limit(limit.seconds / run.makespan_seconds)} {_OF[limit.of]}" if limit else "-",
        f"{run.lost:,}",
        f"{run.duplicates:,}",
    ]
    if not with_2009:
        return cells
    if not run.is_like_2009 or run.reference is None or run.times_faster is None:
        return [*cells, "-", "-"]
    at_bound = run.times_faster < 1 and run.is_at_bound
    faster = "at the bound" if at_bound else f"{run.times_faster:.2f}x"
    return [*cells, f"{run.reference.tasks_per_second:,.0f}/s", faster]


def headline(result: BenchResult) -> str:
    """The machine in one line."""
    machine = result.machine
    cores = f"{machine.cores} cores ({machine.cpu_model})"
    if result.spawn_limit_per_second is None:
        return f"Kestrel {machine.kestrel}, a given pool, seen from {cores}"
    tasks = "" if result.isolation == PLAIN else f", isolation {result.isolation}"
    if machine.launcher == "python":  # the slower way
        tasks += ", tasks started in Python"
    starts = f"{result.spawn_limit_per_second:,.0f} processes/s bare{spread(result)}"
    return f"Kestrel {machine.kestrel} on {cores}, which start {starts}{tasks}"


def spread(result: BenchResult) -> str:
    """How far the bare rates lie apart that were measured before, between and after the runs."""
    rates = result.spawn_rates_per_second
    if len(rates) < 2:
        return ""
    return f" (best of {len(rates)}, the lowest {min(rates):,.0f})"


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


class TablePrinter:
    """Prints the rows of a bench as they come.

    Args:
        stream: gets colour if it is a terminal.
        with_2009: whether columns of 2009 are to be there.
    """

    def __init__(self, stream: TextIO, *, with_2009: bool) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._stream = stream
        self._columns = columns(with_2009=with_2009)
        self._with_2009 = with_2009
        self._printed: int | None = None

    def row(self, result: BenchResult) -> None:
        """Prints the rows that are not there yet, below the headline and the columns."""
        if self._printed is None:
            self._line(Text(headline(result), style="bold"))
            self._line(self._aligned(self._columns, heading=True))
            self._printed = 0
        for run in result.runs[self._printed :]:
            self._line(self._aligned(_row(result, run, with_2009=self._with_2009)))
        self._printed = len(result.runs)
        self._stream.flush()

    def end(self, result: BenchResult) -> None:
        """Prints the other rows, and what is to be said of all of them."""
        self.row(result)
        for line in (*knee_lines(result), *closing(result), *notes(result)):
            self._stream.write(f"{line}\n")

    def _line(self, text: Text) -> None:
        if self._console.is_terminal:
            self._console.print(text)
        else:
            self._stream.write(f"{text.plain}\n")

    def _aligned(self, cells: Sequence[str], *, heading: bool = False) -> Text:
        widths = {**_COLUMNS, **_BESIDE_2009}
        line = Text()
        for place, (column, cell) in enumerate(zip(self._columns, cells, strict=True)):
            is_wrong = not heading and column in ("lost", "twice") and cell != "0"
            style = "bold red" if is_wrong else "" if heading else _STYLES.get(column, "")
            line.append("  " if place else "")
            line.append(cell.rjust(widths[column]), style=style)
        return line


def print_result(result: BenchResult, stream: TextIO) -> None:
    """Prints the headline, the table and its notes, with colour if `stream` is a terminal."""
    TablePrinter(stream, with_2009=is_beside_2009(result)).end(result)
