"""`kestrelctl user list`, `info` and `set`: the users' shares of the pool."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click
from msgspec import UNSET
from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record
from kestrelctl.cli.show.grid import Column
from kestrelctl.cli.user.mail import parse_mail
from kestrelctl.cli.user.share_options import (
    bound,
    byte_bound,
    limits_shown,
    parse_byte_limit,
    share_change,
    share_options,
    usage_shown,
)
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.grammar.quantities import size
from kestrelctl.protocol.answers import Users
from kestrelctl.protocol.requests import ChangeUser, ListUsers
from kestrelctl.protocol.views import UserView

_COLUMNS: list[Column[UserView]] = [
    Column("USER", lambda u: u.user),
    Column("GROUP", lambda u: u.group),
    Column("WEIGHT", lambda u: f"{u.weight:g}", right=True),
    Column("SHARE", lambda u: f"{u.share:.0%}", right=True),
    Column("RUNNING", lambda u: f"{u.running:,}", right=True),
    Column("WAITING", lambda u: f"{u.waiting:,}", right=True),
    Column("USAGE", lambda u: usage_shown(u.usage_seconds), right=True),
    Column("MAX RUNNING", lambda u: bound(u.max_running), right=True),
    Column("MAX QUEUED", lambda u: bound(u.max_queued), right=True),
    Column("QUEUED SIZE", lambda u: size(u.queued_bytes), right=True, wide=True),
    Column("MAX QUEUED SIZE", lambda u: byte_bound(u.max_queued_bytes), right=True, wide=True),
    Column("STORED", lambda u: size(u.stored_bytes), right=True),
    Column("MAX STORED", lambda u: byte_bound(u.max_stored_bytes), right=True),
    Column("LIMITS", lambda u: limits_shown(u.limits)),
]


async def _pages(connection: Connection, request: ListUsers) -> AsyncIterator[list[UserView]]:
    page = await ask(connection, request, Users)
    yield page.users
    while page.after is not None:
        page = await ask(connection, replace(request, after=page.after), Users)
        yield page.users


@click.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List users: their share of the pool, what they run, and what they used lately.

    Users see themselves, admins all; in a pool that shares jobs everybody sees all.
    """

    async def work(connection: Connection) -> CommandOutput:
        pages = _pages(connection, ListUsers())
        return Listing(pages, _COLUMNS, lambda u: u.user, nothing="no users yet")

    invocation.talk(work, as_admin=True)


@click.command("info", cls=CliCommand)
@click.argument("name")
@pass_invocation
def info(invocation: Invocation, name: str) -> None:
    """Show all about one user. NAME is an account, or what is before its `@`."""

    async def work(connection: Connection) -> CommandOutput:
        found = [u async for page in _pages(connection, ListUsers(user=name)) for u in page]
        if not found:
            hint = "`kestrelctl user list` shows all"
            raise NotFound(f"the pool has seen no user {name}", hint=hint)
        if len(found) > 1:
            raise UsageError(
                f"{name} is any of {', '.join(u.user for u in found)}", hint="name one of them"
            )
        return _described(found[0])

    invocation.talk(work, as_admin=True)


def _described(user: UserView) -> CommandOutput:
    blocks: list[str | tuple[str, str]] = [
        ("user", user.user),
        ("group", user.group),
        ("weight", f"{user.weight:g}"),
        ("share", f"{user.share:.1%} of the pool now"),
        ("tasks", f"{user.running:,} running, {user.waiting:,} waiting"),
        ("usage", f"{usage_shown(user.usage_seconds)} lately, weighted"),
        ("max running", bound(user.max_running)),
        ("max queued", bound(user.max_queued)),
        ("queued size", _queued_size(user)),
        ("stored", size(user.stored_bytes)),
        ("max stored", byte_bound(user.max_stored_bytes)),
        ("limits", limits_shown(user.limits)),
        ("mail", user.mail),
    ]
    return Record(user.user, user, blocks)


def _queued_size(user: UserView) -> str:
    have = size(user.queued_bytes) or "0 B"
    most = user.max_queued_bytes
    return have if most is None else f"{have} of at most {byte_bound(most)}"


@click.command("set", cls=CliCommand)
@click.argument("name")
@share_options
@click.option(
    "--max-stored",
    metavar="SIZE",
    help="Size of what the user's tasks may keep in the file share: 20G; `none` is no limit, "
    "`default` that of all users.",
)
@click.option(
    "--max-queued-size",
    metavar="SIZE",
    help="Size of what the user's jobs that have not ended may say together: 64M; `none` is no "
    "limit, `default` that of all users.",
)
@click.option(
    "--group", metavar="GROUP", help="Group whose weight and limits the user shares from now on."
)
@click.option("--no-group", is_flag=True, help="Take the user out of their group.")
@click.option(
    "--mail",
    type=parse_mail,
    metavar="ADDRESS",
    help="Mail address that is told when the user's jobs end; `none` is no mail.",
)
@click.option("--reset-usage", is_flag=True, help="Forget what the user has used so far.")
@pass_invocation
def set_(
    invocation: Invocation,
    name: str,
    weight: float | None,
    max_running: str | None,
    max_queued: str | None,
    limits: tuple[str, ...],
    max_stored: str | None,
    max_queued_size: str | None,
    group: str | None,
    no_group: bool,
    mail: str | None,
    reset_usage: bool,
) -> None:
    """Set a user's share and bounds; what is not named stays as it is. For admins.

    NAME is an account, or what is before its `@` once the pool has seen the user.
    """
    if no_group and group is not None:
        raise UsageError("--group and --no-group exclude each other")
    if group == "":
        raise UsageError("a group has a name", hint="--no-group takes a user out of his group")
    request = ChangeUser(
        user=name,
        change=share_change(weight, max_running, max_queued, limits),
        group="" if no_group else group,
        reset_usage=reset_usage,
        mail=mail,
        max_stored_bytes=UNSET if max_stored is None else parse_byte_limit(max_stored),
        max_queued_bytes=UNSET if max_queued_size is None else parse_byte_limit(max_queued_size),
    )
    if request == ChangeUser(user=name, change=ShareChange()):
        raise UsageError("nothing to set", hint="kestrelctl user set --help")
    invocation.change(request, lambda done: f"user {done.what[0]} is set")
