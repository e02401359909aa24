"""`kestrelctl bench flock-sim`: many pools that lend each other machines, on simulated time."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import Record, Table
from kestrelctl.grammar.click_types import FilePath, Number, WholeNumber
from kestrelctl.grammar.quantities import parse_percent


@click.command("flock-sim", cls=CliCommand, talks=False)
@click.option(
    "--pools",
    type=WholeNumber(2),
    default=1000,
    show_default=True,
    help="Number of pools of the network.",
)
@click.option(
    "--scale",
    type=Number(0, min_open=True),
    default=1.0,
    show_default=True,
    help="Factor for the 25 to 225 machines and sequences of a pool.",
)
@click.option(
    "--seed", type=WholeNumber(0), default=1, show_default=True, help="Seed of all random numbers."
)
@click.option(
    "--ttl",
    "ttls",
    type=click.IntRange(0, 2),
    multiple=True,
    help="Number of pools that announcements travel, a run each; 0 is pools that are alone.  "
    "[default: 0, 1]",
)
@click.option(
    "--look",
    "look_seconds",
    type=Number(0, min_open=True),
    default=0.02,
    show_default=True,
    metavar="SECONDS",
    help="Seconds until a pool looks again at what is free and what waits; the source's took 60.",
)
@click.option(
    "--reclaim",
    "reclaim_minutes",
    type=Number(0),
    default=20.0,
    show_default=True,
    metavar="MINUTES",
    help="Time that tasks of other pools may go on while own ones wait; 20 is longer than any "
    "task.",
)
@click.option(
    "--failing", metavar="PERCENT", help="Share of the pools that are gone for half an hour."
)
@click.option("--joining", metavar="PERCENT", help="Share of the pools that join in the middle.")
@click.option("--core", is_flag=True, help="Give each pool a core as in production; slower.")
@click.option(
    "--compiled", is_flag=True, help="Compile it to C first, with mypyc; for a thousand pools."
)
@click.option(
    "--report", type=FilePath(), metavar="DIR", help="Write a page with plots into this directory."
)
@pass_invocation
def simulate_flocks(
    invocation: Invocation,
    /,
    pools: int,
    scale: float,
    seed: int,
    ttls: tuple[int, ...],
    look_seconds: float,
    reclaim_minutes: float,
    failing: str | None,
    joining: str | None,
    core: bool,
    compiled: bool,
    report: Path | None,
) -> None:
    """Simulate many pools that lend each other machines."""
    from kestrel_experiments.flock_simulation import compiled as compiled_run
    from kestrel_experiments.flock_simulation import page as showing
    from kestrel_experiments.flock_simulation import runs as simulating
    from kestrel_experiments.flock_simulation.flock_world import FlockWorldPlan

    if compiled and not compiled_run.is_compiled():
        modules = (*compiled_run.OF_FLOCKS, *(compiled_run.OF_CORES if core else ()))
        raise SystemExit(compiled_run.run_compiled(sys.argv[1:], modules))
    plans = [
        FlockWorldPlan(
            pools=pools,
            scale=scale,
            seed=seed,
            flocking=ttl > 0,
            ttl=max(ttl, 1),
            look_seconds=look_seconds,
            reclaim_minutes=reclaim_minutes,
            failing=parse_percent(failing) if failing and ttl else 0.0,
            joining=parse_percent(joining) if joining and ttl else 0.0,
            core=core,
        )
        for ttl in ttls or (0, 1)
    ]
    screen = invocation.screen
    runs = simulating.simulate(
        plans, lambda run: screen.say(f"{showing.name_of(run)}: {run.cpu_seconds:,.0f} s of CPU")
    )
    command = shlex.join(["kestrelctl", *sys.argv[1:]])
    result = simulating.FlockSimulation(command=command, runs=runs)
    if report is not None:
        screen.say(f"report: {simulating.write_flock_report(report, result)}")
    headings = [("RUN", False), *((title.upper(), True) for title in showing.COLUMNS[1:])]
    lines = Table(headings, [showing.row_of(run) for run in runs])
    longest = ", ".join(f"{run.minutes:.0f}" for run in runs)
    asyncio.run(invocation.show(Record(longest, msgspec.to_builtins(result), [lines])))
