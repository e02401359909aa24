"""`kestrelctl fleet restart`: services, host by host."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.fleet.hosts import Fleet, choose, error_data, host_options, state_of
from kestrelctl.cli.show.command_output import Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.grammar.quantities import duration, parse_duration

if TYPE_CHECKING:
    from kestrelctl.fleet.restart import RestartStep


class Restarted(msgspec.Struct, frozen=True):
    """The outcome of restarting a unit on a host: `done`, `failed`, `unreachable` or `skipped`."""

    host: str
    unit: str
    state: str
    seconds: float | None = None
    error: dict[str, str | None] | None = None


_COLUMNS: list[Column[Restarted]] = [
    Column("HOST", lambda r: r.host),
    Column("SERVICE", lambda r: r.unit),
    Column("STATE", lambda r: r.state),
    Column("TIME", lambda r: duration(r.seconds), right=True),
    Column("REASON", lambda r: ": ".join(filter(None, _why(r)))),
]


@click.command("restart", cls=CliCommand, talks=False)
@host_options
@click.option(
    "--unit",
    "units",
    multiple=True,
    metavar="UNIT",
    help="Service of systemd; repeatable.  [default: kestrel-manager, kestrel-worker]",
)
@click.option(
    "--serial",
    type=WholeNumber(1),
    default=5,
    show_default=True,
    metavar="N",
    help="Number of workers to restart at a time.",
)
@click.option(
    "--timeout",
    "timeout_seconds",
    type=parse_duration,
    default="15m",
    show_default=True,
    metavar="DURATION",
    help="Time for one host, on which a worker ends its tasks first.",
)
@click.option("-y", "--yes", is_flag=True, help="Go ahead without asking.")
@pass_invocation
def restart(
    invocation: Invocation,
    /,
    units: tuple[str, ...],
    serial: int,
    timeout_seconds: float,
    yes: bool,
    **chosen: Any,
) -> None:
    """Restart services.

    Managers one by one, then workers a few at a time, until one fails.
    """
    from kestrelctl.fleet.restart import installed, plan
    from kestrelctl.fleet.units import KESTREL_UNITS

    wanted = units or KESTREL_UNITS
    fleet = choose(invocation, **chosen)

    async def look() -> list[RestartStep]:
        outcomes = [o async for o in fleet.each(lambda shell: installed(shell, wanted))]
        return plan(sorted((o.host, o.value) for o in outcomes if o.value), serial)

    steps = asyncio.run(look())
    if not steps:
        fleet.judge()
        raise UsageError(f"none of these hosts has {' or '.join(wanted)}")
    if not yes:
        _confirm(steps)
    pages = _restarted(fleet, steps, timeout_seconds)
    listing = Listing(pages, _COLUMNS, lambda r: r.host, nothing="nothing to restart")
    asyncio.run(invocation.show(listing))
    fleet.judge()


def _confirm(steps: Sequence[RestartStep]) -> None:
    """Asks whether to go on.

    Raises:
        UsageError: nobody is there to answer.
    """
    if not sys.stdin.isatty():
        raise UsageError("a restart asks first, and nobody can answer here", hint="--yes")
    for unit in dict.fromkeys(step.unit for step in steps):
        hosts = [host for step in steps if step.unit == unit for host in step.hosts]
        click.echo(f"{unit}: {', '.join(hosts)}", err=True)
    click.confirm("Restart these?", abort=True, err=True)


async def _restarted(
    fleet: Fleet, steps: Sequence[RestartStep], timeout_seconds: float
) -> AsyncIterator[list[Restarted]]:
    """Yields the outcome of each restart; skips what is left after a failure."""
    from kestrelctl.fleet.restart import restart as restart_unit

    has_failed = False
    for step in steps:
        unit = step.unit
        if has_failed:
            yield [Restarted(host, unit, "skipped") for host in step.hosts]
            continue
        outcomes = fleet.each(
            partial(restart_unit, unit=unit, timeout_seconds=timeout_seconds),
            hosts=[host for host in fleet.hosts if host.name in step.hosts],
            at_once=len(step.hosts),
        )
        async for outcome in outcomes:
            error = outcome.error
            state = "done" if error is None else state_of(error)
            has_failed |= error is not None
            yield [Restarted(outcome.host, unit, state, outcome.value, error_data(error))]


def _why(restarted: Restarted) -> tuple[str | None, ...]:
    if restarted.error is None:
        return ("an earlier one failed",) if restarted.state == "skipped" else ()
    return restarted.error["message"], restarted.error["cause"]
