"""`kestrelctl bench properties`: what polling many workers costs, with and without a limit."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import Record, Table
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_types import FilePath, Number, WholeNumber
from kestrelctl.grammar.quantities import parse_digits, split_words


@click.command("properties", cls=CliCommand, talks=False)
@click.option(
    "--clients",
    multiple=True,
    metavar="COUNT",
    help="Workers that are polled, a run each; comma or repeated.  [default: 300]",
)
@click.option(
    "--bytes",
    "sizes",
    multiple=True,
    metavar="COUNT",
    help="Size of each reply in bytes, a run each; comma or repeated.  [default: 10000]",
)
@click.option(
    "--limit",
    "limit_per_second",
    type=Number(0.1),
    help="Repeat each run with at most this many polls a second.  [default: no repetition]",
)
@click.option("--limited-only", is_flag=True, help="Leave out the runs without the limit.")
@click.option(
    "--every",
    "poll_seconds",
    type=Number(1),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Seconds from one poll of all to the next.",
)
@click.option(
    "--seconds", "run_seconds", type=WholeNumber(2), default=120, show_default=True,
    help="Seconds that each run is watched.",
)  # fmt: skip
@click.option(
    "--report", type=FilePath(), metavar="DIR", help="Write the data and plots into this directory."
)
@pass_invocation
def bench_properties(
    invocation: Invocation,
    clients: tuple[str, ...],
    sizes: tuple[str, ...],
    limit_per_second: float | None,
    limited_only: bool,
    poll_seconds: float,
    run_seconds: int,
    report: Path | None,
) -> None:
    """Poll the workers of a pool made for it, and watch its manager."""
    from kestrel_experiments.polls.page import COLUMNS, rows, sentences, write_poll_report
    from kestrel_experiments.polls.result import PollResult
    from kestrel_experiments.polls.run import PollPlan, poll_run
    from kestrelctl.bench.machine import prosody_version, this_machine
    from kestrelctl.bench.report.files import prepare_directory

    if limited_only and limit_per_second is None:
        raise UsageError("which limit?", hint="--limit 10")
    if report is not None:
        prepare_directory(report)
    limits = [limit_per_second] if limited_only else [None, limit_per_second]
    plans = [
        PollPlan(
            clients=count,
            reply_bytes=size,
            poll_seconds=poll_seconds,
            limit_per_second=limit,
            run_seconds=run_seconds,
        )
        for size in _numbers(sizes or ("10000",), 100_000_000)
        for count in _numbers(clients or ("300",), 10_000)
        for limit in dict.fromkeys(limits)
    ]
    screen = invocation.screen
    runs = []
    for number, plan in enumerate(plans, 1):
        screen.say(f"run {number} of {len(plans)}")
        runs.append(asyncio.run(poll_run(plan, screen.say)))
    command = shlex.join(["kestrelctl", *sys.argv[1:]])
    result = PollResult(machine=this_machine(prosody_version()), command=command, runs=runs)
    table = Table([(title, True) for title in COLUMNS], rows(runs))
    asyncio.run(invocation.show(Record("polls", result, [table, *sentences(runs)])))
    if report is not None:
        data, *_ = write_poll_report(report, result)
        screen.say(f"report: {data}")


def _numbers(words: tuple[str, ...], most: int) -> list[int]:
    found = []
    for word in split_words(words):
        number = parse_digits(word, most)
        if not number:
            raise UsageError(f"not a number: {word[:80]!r}", hint="write 300, or 50,100,300")
        found.append(number)
    return list(dict.fromkeys(found))
