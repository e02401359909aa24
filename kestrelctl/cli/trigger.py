"""`kestrelctl trigger …`: rules that act when the pool is in some state."""

from __future__ import annotations

from pathlib import Path

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.pool.events import shown_time
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.show.changed import Changes
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record, Table
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.core.triggers.definition import read_triggers
from kestrelctl.errors import UsageError, why
from kestrelctl.grammar.click_types import FilePath
from kestrelctl.grammar.quantities import ago, duration
from kestrelctl.protocol.triggers import (
    EnableTrigger,
    FiredList,
    FiredView,
    ListFired,
    ListTriggers,
    TriggerList,
    TriggerTest,
    TriggerView,
    TryTrigger,
)

_FIRED_COLUMNS: list[Column[FiredView]] = [
    Column("TIME", lambda f: shown_time(f.at)),
    Column("TRIGGER", lambda f: f.trigger),
    Column("ACTIONS", lambda f: "; ".join(f.actions)),
    Column("PROBLEMS", lambda f: "; ".join(f.problems)),
]


@click.group("trigger", cls=Noun)
def trigger() -> None:
    """List, test and switch rules that act by themselves."""


@trigger.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List triggers: when each is checked, and when it last fired."""

    async def work(connection: Connection) -> CommandOutput:
        found = await ask(connection, ListTriggers(), TriggerList)
        now = invocation.now()
        columns: list[Column[TriggerView]] = [
            Column("NAME", lambda t: t.name),
            Column("STATE", _state),
            Column("TICKS", lambda t: duration(t.tick_seconds), right=True),
            Column("FIRED", lambda t: ago(t.fired_at, now), right=True),
            Column("TIMES", lambda t: f"{t.times:,}", right=True),
            Column("EXPR", lambda t: " ".join(t.expr.split())),
            Column("CMD", lambda t: " ".join(t.cmd.split())),
            Column("PROBLEM", lambda t: t.problem),
        ]
        return Listing(found.triggers, columns, lambda t: t.name, nothing="no triggers")

    invocation.talk(work)


@trigger.command("log", cls=CliCommand)
@click.argument("name", default="")
@pass_invocation
def log(invocation: Invocation, name: str) -> None:
    """List when triggers fired, and what they did. For admins."""

    async def work(connection: Connection) -> CommandOutput:
        found = await ask(connection, ListFired(name=name), FiredList)
        nothing = "no trigger has fired"
        return Listing(found.fired, _FIRED_COLUMNS, lambda f: f.trigger, nothing=nothing)

    invocation.talk(work, as_admin=True)


@trigger.command("test", cls=CliCommand)
@click.argument("name")
@click.option(
    "--file",
    type=FilePath(),
    metavar="FILE",
    help="File that holds the trigger, instead of the pool's own.",
)
@pass_invocation
def test(invocation: Invocation, name: str, file: Path | None) -> None:
    """Show what a trigger would do now, and when it would have fired; do nothing. For admins."""
    text = ""
    if file is not None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read", cause=why(error)) from error
        if name not in [each.name for each in read_triggers(text, str(file))]:
            raise UsageError(f"{file} defines no trigger {name}")

    async def work(connection: Connection) -> CommandOutput:
        answer = await ask(connection, TryTrigger(name=name, text=text), TriggerTest)
        return Record(name, answer, _blocks(name, answer))

    invocation.talk(work, as_admin=True)


@trigger.command("enable", cls=CliCommand)
@click.argument("name")
@pass_invocation
def enable(invocation: Invocation, name: str) -> None:
    """Enable a trigger. For admins."""
    _switch(invocation, name, enabled=True)


@trigger.command("disable", cls=CliCommand)
@click.argument("name")
@pass_invocation
def disable(invocation: Invocation, name: str) -> None:
    """Disable a trigger until it is enabled again. For admins."""
    _switch(invocation, name, enabled=False)


def _switch(invocation: Invocation, name: str, *, enabled: bool) -> None:
    async def work(redial: Redial) -> CommandOutput:
        found = await redial.change(EnableTrigger(name=name, enabled=enabled), twice=True)
        return Changes(found, "enabled" if enabled else "disabled", "trigger")

    invocation.talk_again(work, as_admin=True)


def _state(view: TriggerView) -> str:
    if not view.enabled:
        return "disabled"
    if view.problem:
        return "broken"
    return "true" if view.true_since is not None else "false"


def _blocks(name: str, answer: TriggerTest) -> list[tuple[str, str] | Table | str]:
    blocks: list[tuple[str, str] | Table | str] = [
        ("trigger", name),
        ("now", answer.problem or ("true" if answer.is_true else "false")),
        ("would do", "; ".join(answer.actions)),
    ]
    if answer.recorded_since is None:
        return [*blocks, ("history", "none is recorded: a pool records it once it has triggers")]
    moments = plural(answer.recorded, "moment")
    times = plural(len(answer.would_have_fired), "time")
    since = shown_time(answer.recorded_since)
    blocks.append(("history", f"{moments} since {since}; it would have fired {times}"))
    if answer.would_have_fired:
        rows = [[shown_time(at)] for at in answer.would_have_fired]
        blocks.append(Table([("WOULD HAVE FIRED", False)], rows))
    return blocks
