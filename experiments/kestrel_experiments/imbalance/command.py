"""`kestrelctl bench environments`: hosts for three classes of work, for good or as work comes."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import Record, Table
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.until_signal import SIGNAL_STATUS, until_a_signal
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.grammar.click_types import FilePath, Number, WholeNumber

if TYPE_CHECKING:
    from kestrel_experiments.imbalance.result import ImbalanceRun

#: The seconds that a prepared environment takes to start, measured with venv.
_START = "0.3-0.6"


@click.command("environments", cls=CliCommand, talks=False)
@click.option(
    "--sharing",
    "sharings",
    type=click.Choice(["static", "on-demand", "kept"]),
    multiple=True,
    help="Way in which hosts are shared out, a run each for each seed.  [default: all three]",
)
@click.option(
    "--hosts",
    type=WholeNumber(3),
    default=6,
    show_default=True,
    help="Number of hosts of the pool.",
)
@click.option(
    "--tasks",
    type=WholeNumber(10),
    default=240,
    show_default=True,
    help="Number of tasks of all classes.",
)
@click.option(
    "--seconds",
    "mean_seconds",
    type=Number(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Seconds that a task runs on average.",
)
@click.option(
    "--over",
    type=Number(0.1),
    default=1.0,
    show_default=True,
    metavar="PART",
    help="Tasks come within this part of the time that all hosts together need for them.",
)
@click.option(
    "--idle",
    "idle_seconds",
    type=Number(1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that an environment stays without work.",
)
@click.option(
    "--keep",
    "kept",
    type=WholeNumber(1),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="Number of environments of each class that stay without work, with --sharing kept.",
)
@click.option(
    "--seeds", type=WholeNumber(1), default=1, show_default=True, help="Loads, each for each way."
)
@click.option(
    "--first-seed",
    type=WholeNumber(0),
    default=1,
    show_default=True,
    help="Number of the first trace; the others follow.",
)
@click.option(
    "--simulated", is_flag=True, help="Simulate the time, instead of running on this machine."
)
@click.option(
    "--start",
    metavar="SECONDS",
    help=f"Seconds that a simulated environment takes to come up.  [default: {_START}]",
)
@click.option(
    "--report", type=FilePath(), metavar="DIR", help="Write a page with plots into this directory."
)
@pass_invocation
def bench_environments(
    invocation: Invocation,
    /,
    sharings: tuple[Any, ...],
    seeds: int,
    first_seed: int,
    simulated: bool,
    start: str | None,
    report: Path | None,
    **load: Any,
) -> int:
    """Share hosts out among three classes of work, of which one has most of it.

    The status is 1 if the audit of all tasks finds anything.
    """
    from kestrel_experiments.imbalance.class_load import SHARES, SHARINGS, ImbalancePlan
    from kestrel_experiments.imbalance.page import COLUMNS, rows, sentences, write_imbalance_report
    from kestrel_experiments.imbalance.result import ImbalanceResult
    from kestrel_experiments.imbalance.run import imbalance_run
    from kestrel_experiments.imbalance.simulation import simulated_run
    from kestrelctl.bench.bounds import parse_sleep
    from kestrelctl.bench.machine import prosody_version, this_machine
    from kestrelctl.bench.report.files import prepare_directory

    if start is not None and not simulated:
        raise UsageError("real environments take as long as they do", hint="--simulated --start")
    starting = parse_sleep(start or _START)
    start_seconds = (starting.shortest, starting.longest)
    if report is not None:
        prepare_directory(report)
    plan = ImbalancePlan(**load)
    if len(SHARES) * plan.kept > plan.hosts:
        raise UsageError(f"{plan.hosts:,} hosts have no room for {plan.kept:,} of each class")
    planned = [
        (sharing, seed)
        for seed in range(first_seed, first_seed + seeds)
        for sharing in sharings or SHARINGS
    ]
    screen = invocation.screen
    machine = this_machine("" if simulated else prosody_version())
    runs: list[ImbalanceRun] = []

    async def all_runs() -> None:
        for place, (sharing, seed) in enumerate(planned, 1):
            if simulated:
                await asyncio.sleep(0)  # a signal is heard here
                run = simulated_run(plan, sharing, seed, start_seconds)
            else:
                run = await imbalance_run(plan, sharing, seed)
            runs.append(run)
            _tell(screen, run, place, len(planned))

    stopped = asyncio.run(until_a_signal(all_runs()))
    status = SIGNAL_STATUS[stopped] if stopped else 0
    if not runs:
        return status
    result = ImbalanceResult(
        machine=machine,
        command=shlex.join(["kestrelctl", *sys.argv[1:]]),
        plan=plan,
        runs=runs,
        start_seconds=start_seconds if simulated else None,
        ended_early=f"{stopped.name} after {len(runs)} of {len(planned)} runs" if stopped else "",
    )
    columns = [(COLUMNS[0], False), *((title, True) for title in COLUMNS[1:])]
    spans = ", ".join(f"{run.makespan_seconds:g}" for run in runs)
    table = Table(columns, rows(runs))
    asyncio.run(invocation.show(Record(spans, result, [table, *sentences(result)])))
    if report is not None:
        written, *_ = write_imbalance_report(report, result)
        screen.say(f"report: {written}")
    wrong = [what for run in runs for what in run.wrong]
    if wrong:
        raise KestrelError(f"{len(wrong):,} findings of the audit", cause=wrong[0])
    return status


def _tell(screen: Screen, run: ImbalanceRun, place: int, of: int) -> None:
    waits = ", ".join(f"{each.of} waited {each.mean:,.1f} s" for each in run.waits)
    screen.say(
        f"run {place} of {of}: {run.sharing}, seed {run.seed}: {run.makespan_seconds:,.1f} s, "
        f"{run.utilisation:.0%} busy, {waits}"
    )
