"""`kestrelctl user usage`: what users have used of the pool."""

from __future__ import annotations

import time

import click
from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.job.view import memory, memory_time
from kestrelctl.cli.show.command_output import Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.cli.user.share_options import byte_bound
from kestrelctl.grammar.deadline_words import Since, parse_since
from kestrelctl.grammar.quantities import duration, size
from kestrelctl.protocol.answers import UsedByUsers, UserLine
from kestrelctl.protocol.requests import UsageBy, UserUsage

_COLUMNS: list[Column[UserLine]] = [
    Column("USER", lambda u: u.user),
    Column("TASKS", lambda u: f"{u.tasks:,}", right=True),
    Column("ATTEMPTS", lambda u: f"{u.attempts:,}", right=True, wide=True),
    Column("RUN TIME", lambda u: duration(u.wall_seconds), right=True),
    Column("CPU", lambda u: duration(u.cpu_seconds), right=True),
    Column("MEMORY TIME", lambda u: memory_time(u.memory_byte_seconds, u.attempts), right=True),
    Column(
        "MOST MEMORY", lambda u: memory(u.peak_bytes) if u.attempts else "", right=True, wide=True
    ),
    Column("STORED", lambda u: size(u.stored_bytes), right=True),
    Column("MAX STORED", lambda u: byte_bound(u.max_stored_bytes), right=True, wide=True),
    Column("QUEUED SIZE", lambda u: size(u.queued_bytes), right=True),
    Column("MAX QUEUED SIZE", lambda u: byte_bound(u.max_queued_bytes), right=True, wide=True),
    Column("WAIT OF A TASK", lambda u: duration(u.wait_seconds / (u.tasks or 1)), right=True),
]

_BY_GROUP: list[Column[UserLine]] = [
    Column("GROUP", lambda u: u.user or "(in no group)"),
    *_COLUMNS[1:],
]


@click.command("usage", cls=CliCommand)
@click.argument("name", required=False, default="", metavar="[NAME]")
@click.option(
    "--since",
    type=parse_since,
    default="30d",
    show_default=True,
    metavar="TIME|DATE",
    help="Time to look back, or a date: 7d, 2026-11-01; from the beginning of that day in UTC.",
)
@click.option(
    "--by",
    type=click.Choice(["user", "group"]),
    default="user",
    show_default=True,
    help="Print a line for each user, or for each group: the sum of its present members.",
)
@pass_invocation
def usage(invocation: Invocation, name: str, since: Since, by: UsageBy) -> None:
    """Sum up what users have used: run time, processor time and memory of ended attempts.

    NAME is an account, or what is before its `@`; with `--by group` a group. Users see
    themselves; admins, and in a pool that shares jobs everybody, see all.
    """

    async def work(connection: Connection) -> None:
        request = UserUsage(user=name, since=since.moment(invocation.now()), by=by)
        page = await ask(connection, request, UsedByUsers)
        users = page.users
        while page.after is not None:
            page = await ask(connection, replace(request, after=page.after), UsedByUsers)
            users += page.users
        nothing = "no attempts have ended"
        columns = _BY_GROUP if by == "group" else _COLUMNS
        await invocation.show(Listing(users, columns, lambda u: u.user, nothing=nothing))
        day = time.strftime("%Y-%m-%d", time.gmtime(page.since))
        invocation.screen.say(f"of attempts that ended since {day} 00:00 UTC")

    invocation.talk(work, as_admin=by == "group")
