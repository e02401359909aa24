"""`kestrelctl worker group …`: groups of workers that share one name."""

from __future__ import annotations

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.protocol.answers import WorkerGroupList, WorkerGroupView
from kestrelctl.protocol.requests import ListWorkerGroups, RemoveWorkerGroup, SetWorkerGroup

_COLUMNS: list[Column[WorkerGroupView]] = [
    Column("NAME", lambda g: g.group.name),
    Column("WORKERS", lambda g: f"{g.workers:,}", right=True),
    Column("TAGS", lambda g: " ".join(g.group.tags)),
    Column("NAMES", lambda g: " ".join(g.group.names)),
    Column("WHERE", lambda g: g.group.where),
]


@click.group("group", cls=Noun)
def worker_group() -> None:
    """List and set groups of workers: by tag, by name, by expression."""


@worker_group.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List groups of workers, each with how many are there."""

    async def work(connection: Connection) -> CommandOutput:
        found = await ask(connection, ListWorkerGroups(), WorkerGroupList)
        return Listing(
            found.groups, _COLUMNS, lambda g: g.group.name, nothing="no groups of workers"
        )

    invocation.talk(work)


@worker_group.command("set", cls=CliCommand)
@click.argument("group")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="TAG",
    help="Include workers with this tag; repeatable: with all of them.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="GLOB",
    help="Include workers of this name: 'h7-*'; repeatable: with any of them.",
)
@click.option(
    "--where",
    default="",
    metavar="EXPR",
    help="Include workers for which this expression is true: 'Cpus >= 8'.",
)
@pass_invocation
def set_(
    invocation: Invocation, group: str, tags: tuple[str, ...], names: tuple[str, ...], where: str
) -> None:
    """Make a group, or replace the one of that name. For admins.

    Workers are in it if all options that are given fit them.
    """
    wanted = WorkerGroup(name=group, tags=tags, names=names, where=where)
    invocation.change(
        SetWorkerGroup(group=wanted),
        lambda done: f"{plural(done.tasks, 'worker')} in {group}",
        counts_workers=True,
    )


@worker_group.command("delete", cls=CliCommand)
@click.argument("group")
@pass_invocation
def delete(invocation: Invocation, group: str) -> None:
    """Forget a group; its workers stay. For admins."""
    request = RemoveWorkerGroup(name=group)
    invocation.change(request, lambda _: f"there is no group {group} any more")
