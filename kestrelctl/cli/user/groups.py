"""`kestrelctl group …`: users who share one weight and have bounds together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click
from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record
from kestrelctl.cli.show.grid import Column
from kestrelctl.cli.user.share_options import (
    bound,
    limits_shown,
    share_change,
    share_options,
    usage_shown,
)
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import NotFound
from kestrelctl.protocol.answers import Groups
from kestrelctl.protocol.requests import ChangeGroup, ListGroups, RemoveGroup
from kestrelctl.protocol.views import GroupView

_COLUMNS: list[Column[GroupView]] = [
    Column("GROUP", lambda g: g.group),
    Column("MEMBERS", lambda g: f"{g.members:,}", right=True),
    Column("WEIGHT", lambda g: f"{g.weight:g}", right=True),
    Column("SHARE", lambda g: f"{g.share:.0%}", right=True),
    Column("RUNNING", lambda g: f"{g.running:,}", right=True),
    Column("WAITING", lambda g: f"{g.waiting:,}", right=True),
    Column("USAGE", lambda g: usage_shown(g.usage_seconds), right=True),
    Column("MAX RUNNING", lambda g: bound(g.max_running), right=True),
    Column("MAX QUEUED", lambda g: bound(g.max_queued), right=True),
    Column("LIMITS", lambda g: limits_shown(g.limits)),
]


@click.group("group", cls=Noun)
def group() -> None:
    """List groups of users, and set their weights and limits."""


async def _pages(connection: Connection, request: ListGroups) -> AsyncIterator[list[GroupView]]:
    page = await ask(connection, request, Groups)
    yield page.groups
    while page.after is not None:
        page = await ask(connection, replace(request, after=page.after), Groups)
        yield page.groups


@group.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List groups: your own; for admins, and in a pool that shares jobs, all."""

    async def work(connection: Connection) -> CommandOutput:
        pages = _pages(connection, ListGroups())
        return Listing(pages, _COLUMNS, lambda g: g.group, nothing="no groups")

    invocation.talk(work, as_admin=True)


@group.command("info", cls=CliCommand)
@click.argument("name")
@pass_invocation
def info(invocation: Invocation, name: str) -> None:
    """Show all about one group, with its members."""

    async def work(connection: Connection) -> CommandOutput:
        answer = await ask(connection, ListGroups(group=name), Groups)
        if not answer.groups:
            raise NotFound(f"the pool has no group {name}", hint="kestrelctl group list")
        [found] = answer.groups
        more = found.members - len(found.names)
        members = [*found.names, f"and {more:,} more" if found.names else plural(more, "user")]
        blocks: list[str | tuple[str, str]] = [
            ("group", found.group),
            ("members", ", ".join(members if more else found.names) or "nobody"),
            ("weight", f"{found.weight:g}"),
            ("share", f"{found.share:.1%} of the pool now"),
            ("tasks", f"{found.running:,} running, {found.waiting:,} waiting"),
            ("usage", f"{usage_shown(found.usage_seconds)} lately, weighted"),
            ("max running", bound(found.max_running)),
            ("max queued", bound(found.max_queued)),
            ("limits", limits_shown(found.limits)),
        ]
        return Record(found.group, found, blocks)

    invocation.talk(work, as_admin=True)


@group.command("set", cls=CliCommand)
@click.argument("name")
@share_options
@pass_invocation
def set_(
    invocation: Invocation,
    name: str,
    weight: float | None,
    max_running: str | None,
    max_queued: str | None,
    limits: tuple[str, ...],
) -> None:
    """Make a group, or set its share and bounds; what is not named stays as it is. For admins."""
    request = ChangeGroup(name=name, change=share_change(weight, max_running, max_queued, limits))
    invocation.change(request, lambda _: f"group {name} is set")


@group.command("remove", cls=CliCommand)
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove a group that has no members. For admins."""
    invocation.change(RemoveGroup(name=name), lambda _: f"group {name} is removed")
