"""`kestrelctl bench`: a sweep of tasks, beside the figures of 2009."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from kestrelctl.cli.command import Command, Session, pass_session
from kestrelctl.cli.output import Output
from kestrelctl.cli.quantities import split_words
from kestrelctl.cli.screen import Screen

if TYPE_CHECKING:
    from kestrelctl.bench.result import Result
    from kestrelctl.xmpp.user import UserConnection


@click.command("bench", cls=Command)
@click.option("--jobs", type=click.IntRange(1), help="Tasks of a run.  [default: 50,000]")
@click.option("--workers", type=click.IntRange(1), help="Of one processor each.  [default: 917]")
@click.option(
    "--sleep",
    "sleeps",
    multiple=True,
    metavar="SECONDS",
    help="A run each: 1, 0-10; comma or repeated.  [default: 0,1,10,0-10]",
)
@click.option(
    "--executor",
    type=click.Choice(["process", "inline"]),
    help="Processes, or (with --sleep 0) nothing at all.  [default: process]",
)
@click.option("--report", type=Path, metavar="DIR", help="Write a page with curves there.")
@pass_session
def bench(session: Session, /, sleeps: tuple[str, ...], **options: Any) -> None:
    """Measure a pool made for it on this machine, or with --pool one that runs."""
    from kestrelctl.bench.run import Plan
    from kestrelctl.bench.run import bench as measure

    given = {name: value for name, value in options.items() if value is not None}
    if sleeps:
        given["sleeps"] = split_words(sleeps)
    plan = Plan(command=shlex.join(["kestrelctl", *sys.argv[1:]]), **given)

    async def work() -> None:
        screen = session.screen
        async with contextlib.AsyncExitStack() as stack:
            pool = progress = None
            if session.pool:
                pool = await stack.enter_async_context(session.open_pool(session.pool))
            if sys.stderr.isatty() and not screen.quiet and not screen.mode.is_json:
                from kestrelctl.cli.meter import sweep

                progress = stack.enter_context(sweep(screen))
            result = await measure(plan, cast("UserConnection | None", pool), progress)
        await session.show(BenchResult(result))

    asyncio.run(work())
    if plan.report is not None:
        session.screen.say(f"report: {plan.report / 'report.html'}")


class BenchResult(Output):
    """What a sweep found."""

    def __init__(self, result: Result) -> None:
        self._result = result

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        from kestrelctl.bench.result import to_json

        rates = ", ".join(f"{run.tasks_per_second:g}" for run in self._result.runs)
        yield rates, msgspec.json.decode(to_json(self._result))

    async def tabulate(self, screen: Screen) -> None:
        from kestrelctl.bench.table import print_result

        print_result(self._result, sys.stdout)
