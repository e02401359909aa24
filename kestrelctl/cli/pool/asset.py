"""`kestrelctl pool asset …`: assets of the whole pool, such as licences."""

from __future__ import annotations

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.worker.assets import MOST_TOKENS
from kestrelctl.grammar.click_types import WholeNumber
from kestrelctl.protocol.requests import ListAssets, RemoveAsset, SetAsset
from kestrelctl.protocol.views import Assets, AssetView


@click.group("asset", cls=Noun)
def asset() -> None:
    """List and set assets of the whole pool, such as licences."""


@asset.command("set", cls=CliCommand)
@click.argument("name")
@click.argument("total", type=WholeNumber(1, MOST_TOKENS))
@pass_invocation
def set_(invocation: Invocation, name: str, total: int) -> None:
    """Set the amount of an asset, for all workers together. For admins.

    Tasks ask for them with `submit --asset NAME=1`. If more are held than that, nothing is stopped:
    none are handed out until enough came back.
    """
    request = SetAsset(name=name, total=total)
    invocation.change(request, lambda _: f"the pool has {total:,} {name}")


@asset.command("remove", cls=CliCommand)
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove an asset of the pool. For admins.

    What holds some goes on. Tasks that ask for it wait for a worker that offers it.
    """
    invocation.change(RemoveAsset(name=name), lambda _: f"the pool has no {name} any more")


@asset.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List assets of the pool, with how many are held and how many tasks wait for them."""

    async def work(connection: Connection) -> CommandOutput:
        found = await ask(connection, ListAssets(), Assets)
        columns: list[Column[AssetView]] = [
            Column("NAME", lambda each: each.name),
            Column("TOTAL", lambda each: f"{each.total:,}", right=True),
            Column("HELD", lambda each: f"{each.held:,}", right=True),
            Column("WAITING", lambda each: f"{each.waiting:,}", right=True),
        ]
        return Listing(
            found.assets, columns, lambda each: each.name, nothing="no assets of the pool itself"
        )

    invocation.talk(work)
