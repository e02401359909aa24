"""`kestrelctl bench`: runs of many tasks beside those of 2009, sweeps, comparisons of results."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from kestrelctl.cli.command import Invocation, Noun, common_options, pass_invocation, pool_option
from kestrelctl.cli.show.command_output import CommandOutput, Record, Table
from kestrelctl.cli.show.grid import Column, Grid, Line, painted
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.until_signal import SIGNAL_STATUS, until_a_signal
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import KestrelError, MissingTool, UsageError
from kestrelctl.grammar.click_types import FilePath, Number, WholeNumber
from kestrelctl.grammar.quantities import parse_digits, parse_percent, split_words

if TYPE_CHECKING:
    from kestrelctl.bench.compare import Change, Comparison, Pairing
    from kestrelctl.bench.estimate import Expectation
    from kestrelctl.bench.result import BenchResult, BenchRun
    from kestrelctl.cli.show.meter import Show
    from kestrelctl.xmpp.user import UserConnection


_NEXT = (
    "next: `kestrelctl up` starts a pool of your own; "
    "`kestrelctl bench --full` repeats the four runs of 2009"
)
_NEXT_AFTER_FULL = "next: `kestrelctl up` starts a pool of your own"


class Bench(Noun):
    """A group that is also a command of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.no_args_is_help = False
        self.params.append(pool_option("Pool to measure; KESTREL_POOL names none for a bench."))
        self.params.extend(common_options(talks=False))

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._add_installed()
        return super().list_commands(ctx)

    def summaries(self) -> dict[str, str]:
        self._add_installed()
        return super().summaries()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.commands:
            self._add_installed()
        return super().get_command(ctx, cmd_name)

    def _add_installed(self) -> None:
        """Adds the commands of experiments, which are installed beside a checkout only."""
        from importlib.metadata import entry_points

        for found in entry_points(group="kestrelctl.bench"):
            if found.name not in self.commands:
                self.add_command(found.load())


@click.group("bench", cls=Bench, invoke_without_command=True)
@click.option("--jobs", type=WholeNumber(1), help="Tasks of a run.  [default: 50,000]")
@click.option(
    "--workers",
    metavar="COUNT",
    help="Workers of one processor each; with --sweep several numbers.  "
    "[default: as suits this machine]",
)
@click.option(
    "--sleep",
    "sleeps",
    multiple=True,
    metavar="SECONDS",
    help="A run each: 1, 0-10 (random), 10:914 (on 914 workers); comma or repeated.  "
    "[default: 0,1]",
)
@click.option(
    "--full",
    is_flag=True,
    default=None,
    help="The four runs of 2009 with their workers: a quarter of an hour.  "
    "[--sleep 0:917,1:910,10:914,0-10:902]",
)
@click.option(
    "--sweep",
    is_flag=True,
    default=None,
    help="Every sleep time on every number of workers, each for about the same time.  "
    "[default: --workers 10,100,917 --sleep 0,0.01,0.1,1,10]",
)
@click.option(
    "--cell-seconds",
    type=Number(0, min_open=True),
    help="Seconds for each run of a sweep; --jobs is its most tasks.  [default: 20]",
)
@click.option(
    "--executor",
    type=click.Choice(["process", "inline"]),
    help="Processes, or (with --sleep 0) nothing at all.  [default: process]",
)
@click.option(
    "--isolation",
    type=click.Choice(RUNGS),
    help="Isolation between tasks, in the pool that is made.  [default: plain]",
)
@click.option("--metrics/--no-metrics", default=None, hidden=True, help="To see what they cost.")
@click.option(
    "--report",
    type=FilePath(),
    metavar="DIR",
    help="Directory for the page with the curves and their images.  "
    "[default: a page in Kestrel's state]",
)
@pass_invocation
@click.pass_context
def bench(ctx: click.Context, invocation: Invocation, /, **options: Any) -> int:
    """Measure a pool made for it on this machine, or with --pool one that runs."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    if ctx.invoked_subcommand is not None:
        if given:
            raise UsageError(
                f"options of a run do not go with `bench {ctx.invoked_subcommand}`",
                hint=f"{ctx.command_path} {ctx.invoked_subcommand} --help",
            )
        return 0
    return _measure(invocation, given)


@bench.command("compare", talks=False)
@click.argument("results", nargs=-1, required=True, type=FilePath(), metavar="A B [MORE]...")
@click.option(
    "--threshold",
    metavar="PERCENT",
    help="A ratio this near to 1 is taken for noise.  [default: 10%]",
)
@click.option(
    "--fail-slower",
    metavar="PERCENT",
    help="End with status 1 if tasks per second fell by more than this in any run.",
)
@pass_invocation
def compare_results(
    invocation: Invocation,
    /,
    results: tuple[Path, ...],
    threshold: str | None,
    fail_slower: str | None,
) -> None:
    """Compare results with the first one: ratios, run by run."""
    from kestrelctl.bench import compare as comparing
    from kestrelctl.bench import saved

    noise = comparing.THRESHOLD if threshold is None else parse_percent(threshold)
    limit = None if fail_slower is None else parse_percent(fail_slower)
    found = comparing.compare(
        [saved.read_result(path) for path in results], saved.labels(results), noise
    )
    for warning in found.warnings:
        invocation.screen.warn(warning)
    asyncio.run(invocation.show(_table(found)))
    if limit is not None and (slower := found.slower(limit)):
        raise KestrelError(
            f"{len(slower)} of {len(found.runs)} runs are slower by more than {100 * limit:g} %",
            cause=", ".join(f"{run.result}: sleep {run.sleep}" for run in slower),
        )


@bench.command("report", talks=False)
@click.argument("results", nargs=-1, required=True, type=FilePath(), metavar="RESULT...")
@click.option(
    "--to",
    "file",
    type=FilePath(),
    default=Path("report.html"),
    show_default=True,
    metavar="FILE",
    help="File to write the page to.",
)
@pass_invocation
def report_results(invocation: Invocation, /, results: tuple[Path, ...], file: Path) -> None:
    """Draw results over each other on one page. The first one leads."""
    from kestrelctl.bench.report.directory import write_page

    write_page(file, results)
    asyncio.run(invocation.show(Record(str(file), {"report": str(file)}, [str(file)])))


def _measure(invocation: Invocation, given: dict[str, Any]) -> int:
    """Runs the bench that the options describe, prints and saves the result, returns the status.

    It also prints and saves the runs of a bench that a signal or an error ends early.
    """
    from kestrelctl.bench import run as running
    from kestrelctl.bench import sweep as sweeping
    from kestrelctl.bench.collected_runs import CollectedRuns
    from kestrelctl.bench.reference import SLEEPS_2009
    from kestrelctl.bench.report import directory as reporting
    from kestrelctl.bench.report.wording import announcement
    from kestrelctl.cli.show.meter import Bars, now_and_then

    directory = given.pop("report", None)
    sweep = given.pop("sweep", False)
    full = given.pop("full", False)
    cell_seconds = given.pop("cell_seconds", None)
    workers = _counts(given.pop("workers", ""))
    if full:
        if sweep or workers or "sleeps" in given:
            raise UsageError(
                "--full says which runs there are, and on how many workers",
                hint="leave out --sweep, --workers and --sleep, or --full",
            )
        given["sleeps"] = SLEEPS_2009
    elif "sleeps" in given:
        given["sleeps"] = split_words(given["sleeps"])
    elif sweep:
        given["sleeps"] = sweeping.SLEEPS
    if not sweep:
        if len(workers) > 1 or cell_seconds is not None:
            raise UsageError(
                "several numbers of workers, or a time for each run, make a sweep",
                hint="add --sweep",
            )
        if workers:
            given["workers"] = workers[0]
    plan = running.BenchPlan(command=shlex.join(["kestrelctl", *sys.argv[1:]]), **given)
    screen = invocation.screen
    with_meter = sys.stderr.isatty() and not screen.quiet and not screen.mode.is_json
    table = RunTable(screen, with_2009=not sweep and running.is_beside_2009(plan))
    with_rows = screen.is_table and not sweep
    meter = Bars(screen, keep=sweep) if with_meter else None

    def on_run(run: BenchRun, number: int, of: int) -> None:
        if meter is None:
            _tell(screen, run, number, of)
        else:
            meter.make_room()
        if with_rows:
            table.rows(collected.result(plan.command, plan.isolation))

    def on_begin(expected: Expectation | None) -> None:
        if expected is not None:
            screen.say(announcement(expected))

    collected = CollectedRuns(on_run, on_begin)
    if not invocation.pool and not sweep:
        screen.say("measuring this machine for some seconds")

    async def measure() -> None:
        async with contextlib.AsyncExitStack() as stack:
            pool = None
            if invocation.pool:
                opened = await stack.enter_async_context(invocation.open_pool(invocation.pool))
                pool = cast("UserConnection", opened)
            progress: Show | None = None
            if meter is not None:
                stack.callback(meter.end)
                progress = meter.show
            elif not screen.quiet and not screen.mode.is_json:
                progress = now_and_then(screen.say)
            if sweep:
                await sweeping.sweep(
                    plan,
                    collected,
                    workers or sweeping.WORKERS,
                    cell_seconds or sweeping.CELL_SECONDS,
                    pool,
                    progress,
                )
            else:
                await running.bench(plan, collected, pool, progress)

    if directory is not None:
        reporting.prepare_report(directory)
    elif screen.is_table:
        place = reporting.prepare_own_directory()

    def hand_over(ended_by: str | None = None) -> None:
        if not collected.runs:
            return
        result = collected.result(plan.command, plan.isolation, ended_by)
        try:
            asyncio.run(invocation.show(BenchOutput(result, table)))
        finally:  # even if nobody reads the output any more
            if directory is not None:
                page, *_ = reporting.write_report(directory, result)
                screen.say(f"curves: {page}")
            elif screen.is_table:
                own = reporting.new_directory(place, datetime.now().astimezone())
                try:
                    page, *_ = reporting.write_report(own, result, images=False)
                    screen.say(f"curves: {page}")
                except MissingTool as error:
                    data = reporting.write_data(own, result)
                    screen.say(
                        f"result: {data}; `{error.hint}` lets "
                        f"`kestrelctl bench report {shlex.quote(str(own))}` draw its curves"
                    )
        if ended_by is None and not invocation.pool and not sweep:
            screen.say(_NEXT_AFTER_FULL if full else _NEXT)

    try:
        stopped = asyncio.run(until_a_signal(measure()))
    except Exception:  # a full disk, for example, comes as it is
        hand_over("an error")
        raise
    hand_over(stopped.name if stopped else None)
    return SIGNAL_STATUS[stopped] if stopped else 0


def _tell(screen: Screen, run: BenchRun, number: int, of: int) -> None:
    """Says on standard error that a run has ended, if no bar shows it."""
    if screen.mode.is_json and not screen.quiet:
        told = {"number": number, "of": of, "sleep": run.sleep, "workers": run.workers}
        told |= {"jobs": run.jobs, "makespan_seconds": run.makespan_seconds}
        screen.write_error_bytes(json.dumps({"run": told}).encode() + b"\n")
        return
    screen.say(
        f"run {number} of {of}: sleep {run.sleep} on {run.size} workers, "
        f"{run.jobs:,} tasks in {run.makespan_seconds:,.1f} s"
    )


def _counts(text: str) -> tuple[int, ...]:
    """Reads numbers of workers, with commas between them."""
    words = split_words([text])
    numbers = tuple(parse_digits(word) or 0 for word in words)
    if not all(numbers) or (text and not numbers):
        raise UsageError(f"not a number of workers: {text[:80]!r}", hint="write 917, or 10,100,917")
    return numbers


class RunTable:
    """The table of a bench, which is printed row by row.

    Args:
        with_2009: whether it has the columns of 2009.
    """

    def __init__(self, screen: Screen, *, with_2009: bool) -> None:
        from kestrelctl.bench.report.table import columns

        self._screen = screen
        self._with_2009 = with_2009
        self._grid = Grid(
            [
                Column(
                    title, itemgetter(place), right=True, width=width, style=_style(title, place)
                )
                for place, (title, width) in enumerate(columns(with_2009=with_2009).items())
            ]
        )
        self._printed: int | None = None

    def rows(self, result: BenchResult) -> None:
        """Prints the rows that are not printed yet, below the headline and the columns."""
        from kestrelctl.bench.report.table import headline, rows

        lines: list[Line] = []
        if self._printed is None:
            lines.append([(headline(result), "bold")])
            self._printed = 0
        new = rows(result, with_2009=self._with_2009)[self._printed :]
        lines += self._grid.lines(new)
        self._printed += len(new)
        text = "".join(f"{painted(line, self._screen)}\n" for line in lines)
        self._screen.write_bytes(text.encode())  # at once, for whoever follows a file

    def end(self, result: BenchResult) -> None:
        """Prints the remaining rows, and the closing sentences and notes."""
        from kestrelctl.bench.report.table import knee_lines, notes
        from kestrelctl.bench.report.wording import closing

        self.rows(result)
        for line in (*knee_lines(result), *closing(result), *notes(result)):
            self._screen.write(f"{line}\n")


def _style(title: str, place: int) -> Callable[[Sequence[str]], str]:
    """Makes the style of a column: what is lost or done twice stands out."""
    if title in ("lost", "twice"):
        return lambda cells: "" if cells[place] == "0" else "bold red"
    style = {"tasks/s": "bold", "faster": "bold green", "2009": "dim"}.get(title, "")
    return lambda _: style


class BenchOutput(CommandOutput):
    """The result of a bench."""

    def __init__(self, result: BenchResult, table: RunTable) -> None:
        self._result = result
        self._table = table

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        from kestrelctl.bench.result import to_json

        rates = ", ".join(f"{run.tasks_per_second:g}" for run in self._result.runs)
        yield rates, msgspec.json.decode(to_json(self._result))

    async def tabulate(self, screen: Screen) -> None:
        self._table.end(self._result)


_RATIOS = {
    "MAKESPAN": "makespan_seconds",
    "TASKS/S": "tasks_per_second",
    "BUSY": "utilisation",
    "P50": "latency_p50_ms",
    "P99": "latency_p99_ms",
    "CPU": "cpu_seconds_per_1000_tasks",
}


def _table(found: Comparison) -> Record:
    several = len({run.result for run in found.runs}) > 1
    headings = [("RESULT", False)] if several else []
    headings += [("SLEEP", True), ("WORKERS", True), *((title, True) for title in _RATIOS)]
    rows = [_row(run, several=several) for run in found.runs]
    worse = sum(change.verdict == "worse" for run in found.runs for change in run.changes.values())
    others = ", ".join(dict.fromkeys(run.result for run in found.runs))
    return Record(
        "worse" if worse else "same",
        found,
        [
            f"{others} over {found.baseline}; + better, ! worse by more than "
            f"{100 * found.threshold:g} %",
            Table(headings, rows),
        ],
    )


def _row(run: Pairing, *, several: bool) -> list[str]:
    sleep = run.sleep if run.executor == "process" else f"{run.sleep} {run.executor}"
    cells = [sleep, f"{run.workers:,}", *(_ratio(run.changes[name]) for name in _RATIOS.values())]
    return [run.result, *cells] if several else cells


def _ratio(change: Change) -> str:
    mark = {"better": " +", "worse": " !"}.get(change.verdict, "  ")
    return f"{'-' if change.ratio is None else f'{change.ratio:.2f}'}{mark}"
