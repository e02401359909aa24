"""`kestrelctl pool policy …`: rules for what tasks are charged on which workers."""

from __future__ import annotations

from typing import TextIO

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.protocol.requests import ListPolicies, RemovePolicy, SetPolicy
from kestrelctl.protocol.views import Policies, PolicyView


@click.group("policy", cls=Noun)
def policy() -> None:
    """List and set policies: what tasks are charged on which workers."""


@policy.command("set", cls=CliCommand)
@click.argument("name")
@click.argument("file", type=click.File("r", encoding="utf-8"))
@click.option(
    "--workers",
    metavar="EXPR",
    default="true",
    show_default=True,
    help="Expression that is true for the workers of the policy.",
)
@pass_invocation
def set_(invocation: Invocation, name: str, file: TextIO, workers: str) -> None:
    """Set a policy, or replace the one of that name. For admins.

    FILE has lines like `ConsumptionMemory = quantize(TARGET.RequestMemory, {128})`; `-` is standard
    input. What runs stays charged as it was.
    """
    try:
        text = file.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"{file.name} is no text", cause=str(error)) from None
    invocation.change(
        SetPolicy(name=name, workers=workers, text=text),
        lambda done: f"policy {name} is in force for {plural(done.tasks, 'worker')}",
        counts_workers=True,
    )


@policy.command("remove", cls=CliCommand)
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove a policy. For admins."""
    invocation.change(RemovePolicy(name=name), lambda _: f"policy {name} is removed")


@policy.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List policies. Of those that are for a worker, the first by name counts."""

    async def work(connection: Connection) -> CommandOutput:
        found = await ask(connection, ListPolicies(), Policies)
        columns: list[Column[PolicyView]] = [
            Column("NAME", lambda p: p.name),
            Column("WORKERS", lambda p: f"{p.in_force:,}", right=True),
            Column("FOR", lambda p: p.workers),
        ]
        return Listing(found.policies, columns, lambda p: p.name, nothing="no policies")

    invocation.talk(work)


@policy.command("info", cls=CliCommand)
@click.argument("name")
@pass_invocation
def info(invocation: Invocation, name: str) -> None:
    """Show a policy with all its lines."""

    async def work(connection: Connection) -> CommandOutput:
        answer = await ask(connection, ListPolicies(), Policies)
        found = next((p for p in answer.policies if p.name == name), None)
        if found is None:
            raise NotFound(f"the pool has no policy {name}", hint="kestrelctl pool policy list")
        data = {
            "name": name,
            "workers": found.workers,
            "in_force": found.in_force,
            "text": found.text,
        }
        blocks: list[str | tuple[str, str]] = [
            ("policy", name),
            ("for", found.workers),
            ("in force", f"for {plural(found.in_force, 'worker')}"),
            *found.text.splitlines(),
        ]
        return Record(name, data, blocks)

    invocation.talk(work)
