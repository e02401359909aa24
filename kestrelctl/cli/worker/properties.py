"""`kestrelctl worker properties`: sums up the properties of workers' hosts."""

from __future__ import annotations

from collections.abc import Iterable

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.properties.reading import PropertyValue
from kestrelctl.grammar.attributes import plain_value
from kestrelctl.grammar.quantities import duration
from kestrelctl.protocol.properties import (
    ListProperties,
    PropertyList,
    PropertyView,
    ToldReading,
)

_COLUMNS: list[Column[PropertyView]] = [
    Column("PROPERTY", lambda p: p.name),
    Column("WORKERS", lambda p: f"{p.summary.count:,}", right=True),
    Column("MISSING", lambda p: f"{p.summary.missing:,}", right=True),
    Column("MIN", lambda p: _number(p.summary.min), right=True),
    Column("MEAN", lambda p: _number(p.summary.mean), right=True),
    Column("MAX", lambda p: _number(p.summary.max), right=True),
]


@click.command("properties", cls=CliCommand)
@click.argument("names", nargs=-1, metavar="[PROPERTIES]...")
@click.option("--group", default="", metavar="GROUP", help="Count only workers of this group.")
@pass_invocation
def properties(invocation: Invocation, names: tuple[str, ...], group: str) -> None:
    """Sum up the properties of workers' hosts: how many tell each, its least and its most.

    `worker info` has the values of one worker.
    """

    async def work(connection: Connection) -> CommandOutput:
        request = ListProperties(group=group, names=list(names))
        found = await ask(connection, request, PropertyList)
        return Listing(
            found.properties,
            _COLUMNS,
            lambda p: p.name,
            nothing="no worker tells of a property of its host",
        )

    invocation.talk(work)


def property_lines(told: Iterable[ToldReading], now: float) -> list[tuple[str, str]]:
    """Makes a line for each property of a worker.

    Args:
        now: seconds since the epoch.
    """
    return [(each.name, f"{_said(each)}, for {duration(max(0.0, now - each.at))}") for each in told]


def _said(told: ToldReading) -> str:
    if told.value is None:
        return f"missing: {told.missing}"
    value: PropertyValue = told.value
    return plain_value(value)


def _number(amount: float | None) -> str:
    return "" if amount is None else f"{amount:,.10g}"
