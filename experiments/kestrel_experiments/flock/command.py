"""`kestrelctl bench flock`: pools that lend each other machines, beside the source's table."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput
from kestrelctl.cli.show.screen import Screen
from kestrelctl.cli.until_signal import SIGNAL_STATUS, until_a_signal
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.grammar.click_types import FilePath, Number, WholeNumber
from kestrelctl.grammar.quantities import split_words

if TYPE_CHECKING:
    from kestrel_experiments.flock.result import FlockResult, FlockRun


@click.command("flock", cls=CliCommand, talks=False)
@click.option("--without", is_flag=True, help="Pools on their own.  [default: --without --with]")
@click.option("--with", "with_", is_flag=True, help="Pools that find each other and lend.")
@click.option("--static", is_flag=True, help="Pools that were told of all others once, by hand.")
@click.option(
    "--seeds", type=WholeNumber(1), default=1, show_default=True, help="Traces, each for each mode."
)
@click.option(
    "--first-seed",
    type=WholeNumber(0),
    default=1,
    show_default=True,
    help="Number of the first trace; the others follow.",
)
@click.option(
    "--unit",
    "unit_seconds",
    type=Number(0, min_open=True),
    default=0.05,
    show_default=True,
    metavar="SECONDS",
    help="Seconds that a unit of the trace takes, and a minute of the flock.",
)
@click.option(
    "--reclaim",
    "reclaim_units",
    type=Number(0),
    default=20.0,
    show_default=True,
    metavar="UNITS",
    help="Time that tasks of other pools may go on while own ones wait; 20 is longer than any "
    "task.",
)
@click.option(
    "--at-once",
    type=WholeNumber(1),
    default=1,
    show_default=True,
    help="Runs side by side, if the machine has room.",
)
@click.option(
    "--delay",
    "delays",
    multiple=True,
    metavar="MS",
    help="Milliseconds between each two servers, each way; several with commas: a run each.  "
    "[default: 0]",
)
@click.option("--kill", is_flag=True, help="Kill a manager and a server in the middle.")
@click.option(
    "--tasks",
    "most_tasks",
    type=WholeNumber(1),
    help="Number of tasks of each pool, the first ones.  [default: all, 1,200 of four pools]",
)
@click.option(
    "--compare",
    "earlier",
    multiple=True,
    type=FilePath(),
    metavar="RESULT",
    help="Ratios to an earlier result: of -o json, or a directory of --report.",
)
@click.option(
    "--report", type=FilePath(), metavar="DIR", help="Write a page with plots into this directory."
)
@pass_invocation
def flock(invocation: Invocation, /, **options: Any) -> int:
    """Run four pools of three machines with the traces of the source of flocking.

    The status is 1 if any task was lost, or a result accepted twice.
    """
    from kestrel_experiments.flock import run as running
    from kestrel_experiments.flock.report import write_flock_report
    from kestrel_experiments.flock.result import read_flock_result
    from kestrelctl.bench.machine import prosody_version, this_machine
    from kestrelctl.bench.report.files import prepare_directory

    directory: Path | None = options.pop("report")
    earlier = [(str(path), read_flock_result(path)) for path in options.pop("earlier")]
    modes = [
        mode
        for mode, wanted in (
            ("without", options.pop("without")),
            ("with", options.pop("with_")),
            ("static", options.pop("static")),
        )
        if wanted
    ]
    if modes:
        options["modes"] = tuple(modes)
    if delays := _delays(options.pop("delays")):
        options["delays_ms"] = delays
    if directory is not None:
        prepare_directory(directory)
    screen = invocation.screen
    experiment = running.Experiment(
        running.ExperimentPlan(**options), lambda run, number, of: _tell(screen, run, number, of)
    )
    machine = this_machine(prosody_version())
    command = shlex.join(["kestrelctl", *sys.argv[1:]])

    def hand_over(ended_by: str | None = None) -> FlockResult | None:
        if not experiment.runs:
            return None
        result = experiment.result(machine, command, ended_by)
        try:
            asyncio.run(invocation.show(FlockOutput(result, earlier)))
        finally:  # also when nobody reads any more what is printed
            if directory is not None:
                page, *_ = write_flock_report(directory, result)
                screen.say(f"report: {page}")
        return result

    try:
        stopped = asyncio.run(until_a_signal(experiment.run()))
    except Exception:  # a full disk, for example, comes as it is
        hand_over("an error")
        raise
    result = hand_over(stopped.name if stopped else None)
    if result is not None and (wrong := sum(len(run.audit.breaches) for run in result.runs)):
        raise KestrelError(
            f"{wrong:,} findings of the audit: what a flock promises does not hold",
            cause=next(breach for run in result.runs for breach in run.audit.breaches),
        )
    return SIGNAL_STATUS[stopped] if stopped else 0


def _delays(words: tuple[str, ...]) -> tuple[float, ...]:
    """Reads milliseconds, with commas between them.

    Raises:
        UsageError: a word is not a delay in milliseconds.
    """
    found = []
    for word in split_words(words):
        try:
            delay_ms = float(word)
        except ValueError:
            delay_ms = -1.0
        if not 0 <= delay_ms <= 10_000:
            raise UsageError(f"not a delay in milliseconds: {word!r}", hint="write 60, or 0,40,80")
        found.append(delay_ms)
    return tuple(dict.fromkeys(found))


def _tell(screen: Screen, run: FlockRun, number: int, of: int) -> None:
    """Says on standard error that a run has ended."""
    if screen.quiet:
        return
    overall = run.waits[-1]
    if screen.mode.is_json:
        told: dict[str, object] = {"number": number, "of": of, "mode": run.mode, "seed": run.seed}
        told |= {"delay_ms": run.delay_ms, "mean": overall.mean, "most": overall.most}
        sys.stderr.write(json.dumps({"run": told}) + "\n")
    else:
        delay = f", {run.delay_ms:g} ms apart" if run.delay_ms else ""
        sys.stderr.write(
            f"run {number} of {of}: {run.mode}, seed {run.seed}{delay}: "
            f"{plural(overall.tasks, 'task')} waited {overall.mean:,.1f} on average, "
            f"{overall.most:,.1f} at most, {overall.elsewhere:,} ran elsewhere\n"
        )
    sys.stderr.flush()


class FlockOutput(CommandOutput):
    """The output of an experiment."""

    def __init__(self, result: FlockResult, earlier: list[tuple[str, FlockResult]]) -> None:
        self._result = result
        self._earlier = earlier

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        from kestrel_experiments.flock.result import to_json

        means = ", ".join(f"{run.waits[-1].mean:g}" for run in self._result.runs)
        yield means, msgspec.json.decode(to_json(self._result))

    async def tabulate(self, screen: Screen) -> None:
        from kestrel_experiments.flock.compare import comparison
        from kestrel_experiments.flock.table import text

        screen.write(f"{text(self._result)}\n")
        for name, result in self._earlier:
            screen.write(f"\n{comparison(name, result, self._result)}\n")
