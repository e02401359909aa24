"""`kestrelctl context …`: the pools that commands on this machine can talk to."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from kestrelctl.access.context import Context, find_context, known_contexts, own_config
from kestrelctl.access.context_file import add_context, remove_context, use_context
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record
from kestrelctl.cli.show.grid import Column
from kestrelctl.errors import KestrelError, UsageError


@click.group("context", cls=Noun, examples=("kestrelctl context list",))
def context() -> None:
    """Add, list and choose the pools that commands talk to.

    Contexts stand in the configuration, which may also be written by hand. A pool of `up` needs
    none.
    """


@context.command("add", cls=CliCommand, talks=False)
@click.argument("name")
@click.option("--jid", required=True, metavar="JID", help="Account at the server: ada@example.org.")
@click.option("--domain", "pool", required=True, metavar="DOMAIN", help="Domain of the pool.")
@click.option(
    "--password-file",
    metavar="FILE",
    help="File whose first line is the password.  [default: it is asked for, or read from standard "
    "input, and kept beside the configuration]",
)
@click.option(
    "--keyring", is_flag=True, help="Keep the password in the system's keyring, not in a file."
)
@click.option(
    "--host", metavar="HOST", help="Host of the server.  [default: domain of the account]"
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the server.  [default: 5222]")
@click.option("--no-tls", is_flag=True, help="Talk in the clear; on one machine only.")
@click.option("--ca-file", metavar="FILE", help="Certificates (PEM) of whom to trust alone.")
@pass_invocation
def add(invocation: Invocation, name: str, no_tls: bool, keyring: bool, **given: Any) -> None:
    """Add a context; the first one is used from then on."""
    fields: dict[str, str | int | bool] = {k: v for k, v in given.items() if v is not None}
    for key in ("password_file", "ca_file"):
        if key in fields:
            fields[key] = str(Path(os.path.expanduser(str(fields[key]))).absolute())
    if no_tls:
        fields["tls"] = False
    if keyring and "password_file" in fields:
        raise UsageError("--keyring and --password-file exclude each other")
    if keyring:
        fields["keyring"] = True
    password = "" if "password_file" in fields else _password(str(fields["jid"]))
    file = add_context(name, fields, password)
    invocation.screen.say(f"context {name} is in {file}")
    invocation.screen.say(f"next: kestrelctl --pool {name} doctor")


def _password(jid: str) -> str:
    if sys.stdin.isatty():
        found = click.prompt(f"password of {jid}", hide_input=True, err=True)
    else:
        found = sys.stdin.readline().rstrip("\n")
    if not found:
        raise UsageError(f"the password of {jid} is empty", hint="--password-file FILE")
    return str(found)


@context.command("use", cls=CliCommand, talks=False)
@click.argument("name")
@pass_invocation
def use(invocation: Invocation, name: str) -> None:
    """Make a context, or a pool of this machine, the one that commands mean.

    `--pool NAME` and KESTREL_POOL go before it.
    """
    if not name:  # a variable of a shell that is not set: it would mean what is meant already
        raise UsageError("a context has a name", hint="kestrelctl context list")
    find_context(name)
    use_context(name)
    invocation.screen.say(f"commands talk to {name} from now on")


@context.command("remove", cls=CliCommand, talks=False)
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Take a context out of your configuration; its password stays where it is."""
    remove_context(name)
    invocation.screen.say(f"{own_config()} has no context {name} any more")


@context.command("list", cls=CliCommand, talks=False)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List contexts, and the pools of this machine that run."""
    import asyncio

    found = known_contexts()
    try:
        used = find_context("").name
    except KestrelError:
        used = ""
    columns: list[Column[Context]] = [
        Column("NAME", lambda each: each.name),
        Column("USED", lambda each: "yes" if each.name == used else "", sparse=True),
        Column("POOL", lambda each: each.pool),
        Column("ACCOUNT", lambda each: each.user.jid),
        Column("SERVER", lambda each: f"{each.host}:{each.port}"),
    ]
    listing: CommandOutput = Listing(
        found, columns, lambda each: each.name, nothing="no contexts, and no pool runs here"
    )
    asyncio.run(invocation.show(listing))


@context.command("show", cls=CliCommand, talks=False)
@click.argument("name", required=False)
@pass_invocation
def show(invocation: Invocation, name: str | None) -> None:
    """Show a context, or the one that commands mean; never its password."""
    import asyncio

    found = find_context(name or "")
    blocks = [
        ("pool", found.pool),
        ("account", found.user.jid),
        ("password file", str(found.user.password_file or "none: the system's keyring has it")),
        ("admin's account", found.admin.jid if found.admin else ""),
        ("server", f"{found.host}:{found.port}"),
        ("encryption", "TLS" if found.tls else "none: the server is on this machine"),
        ("trusted", str(found.ca_file or ("the system's authorities" if found.tls else ""))),
    ]
    asyncio.run(invocation.show(Record(found.name, {"name": found.name} | dict(blocks), [*blocks])))
