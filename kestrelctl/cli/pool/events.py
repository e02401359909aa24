"""`kestrelctl pool events`: the events of workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import Listing
from kestrelctl.cli.show.follow import INTERVAL_SECONDS, PATIENCE_SECONDS
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.membership.event import EventQuery, MembershipEvent
from kestrelctl.core.model.member_change import MEMBER_KINDS
from kestrelctl.errors import Busy, TimedOut, Unreachable, UsageError
from kestrelctl.grammar.deadline_words import Since, parse_since
from kestrelctl.grammar.quantities import short_address
from kestrelctl.protocol.answers import EventPage
from kestrelctl.protocol.requests import ListEvents

_COLUMNS: list[Column[MembershipEvent]] = [
    Column("TIME", lambda e: shown_time(e.at)),
    Column("EVENT", lambda e: e.kind),
    Column("WORKER", lambda e: short_address(e.worker)),
    Column("GROUPS", lambda e: " ".join(e.groups)),
    Column("REASON", lambda e: e.reason),
    Column("NUMBER", lambda e: str(e.number), right=True, wide=True),
    Column("ADDRESS", lambda e: e.worker, wide=True),
]


def shown_time(at: float) -> str:
    """Writes a moment in the time of this machine: `2026-11-24 03:11:07`."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


@click.command("events", cls=CliCommand)
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on with new events as they come.")
@click.option(
    "--worker", default="", metavar="GLOB", help="Show only workers of this name: 'h7-*'."
)
@click.option(
    "--kind",
    default="",
    type=click.Choice(["", *MEMBER_KINDS]),
    help="Show only events of this kind.",
    metavar="KIND",
)
@click.option(
    "--group", default="", metavar="GROUP", help="Show only workers that were in this group."
)
@click.option(
    "--since",
    type=parse_since,
    metavar="TIME|DATE",
    help="Show only events within this time, or since this date: 7d, 2026-11-01.  [default: all; "
    "with -f, new ones]",
)
@pass_invocation
def events(
    invocation: Invocation,
    follows: bool,
    worker: str,
    kind: str,
    group: str,
    since: Since | None,
) -> None:
    """List what happened to workers: joined, left, failed, changed, quarantined, drained.

    KIND is one of join, leave, failed, update, quarantine, quarantine-end, drain, drain-end.
    """
    if follows and invocation.screen.mode.value == "json":
        raise UsageError(
            "what is followed has no end", hint="-o jsonl gives an object on each line"
        )
    begins = 0.0 if since is None else since.moment(invocation.now())
    query = EventQuery(worker=worker, kind=kind, group=group, since=begins)

    if follows:
        invocation.screen.write_lines_at_once()

    async def work(connection: Connection) -> None:
        first = ListEvents(query=query, after=-1 if follows and since is None else 0)
        found = _followed(connection, invocation, first) if follows else _pages(connection, first)
        anything = query == EventQuery()
        nothing = "no events of workers" if anything else "no such events of workers"
        await invocation.show(Listing(found, _COLUMNS, lambda e: str(e.number), nothing=nothing))

    invocation.talk(work)


async def _pages(
    connection: Connection, request: ListEvents
) -> AsyncIterator[list[MembershipEvent]]:
    more = True
    while more:
        page = await ask(connection, request, EventPage)
        if page.events:
            yield page.events
        more = page.more
        request = ListEvents(query=request.query, after=page.after)


async def _followed(
    connection: Connection, invocation: Invocation, request: ListEvents
) -> AsyncIterator[list[MembershipEvent]]:
    """Yields pages as they come; a pool that is away is given time to come back."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + PATIENCE_SECONDS
    while True:
        try:
            page = await ask(connection, request, EventPage)
        except (Busy, TimedOut, Unreachable) as error:
            if clock() >= deadline:
                raise
            invocation.screen.detail(f"no answer ({error.message}); asking again")
        else:
            deadline = clock() + PATIENCE_SECONDS
            request = ListEvents(query=request.query, after=page.after)
            if page.events:
                yield page.events
            if page.more:
                continue
        await asyncio.sleep(INTERVAL_SECONDS)
