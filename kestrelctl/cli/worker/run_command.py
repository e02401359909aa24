"""`kestrelctl worker commands` and `run-command`: lists and runs the commands of workers."""

from __future__ import annotations

from collections import Counter

import click

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.show.command_output import CommandOutput, Listing
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.grammar.attributes import plain_value
from kestrelctl.grammar.quantities import duration, short_address
from kestrelctl.protocol.commands import (
    CommandList,
    CommandResult,
    CommandResults,
    CommandView,
    ListCommands,
    RunAtWorkers,
)

#: The time that an answer may take longer than the command itself.
ANSWER_SECONDS = 30.0

_COLUMNS: list[Column[CommandView]] = [
    Column("COMMAND", lambda c: c.name),
    Column("WORKERS", lambda c: f"{c.workers:,}", right=True),
    Column("TIMEOUT", lambda c: duration(c.timeout_seconds), right=True),
    Column(
        "PARAMETERS", lambda c: " ".join(f"{name}={kind.upper()}" for name, kind in c.parameters)
    ),
]
_RESULT_COLUMNS: list[Column[CommandResult]] = [
    Column("WORKER", lambda r: short_address(r.worker)),
    Column("TIME", lambda r: duration(r.seconds), right=True),
    Column("RESULT", lambda r: "" if r.value is None else plain_value(r.value)),
    Column("ERROR", lambda r: r.error),
    Column("ADDRESS", lambda r: r.worker, wide=True),
]


@click.command("commands", cls=CliCommand)
@pass_invocation
def commands(invocation: Invocation) -> None:
    """List the commands that admins can run at workers, with their arguments."""

    async def work(connection: Connection) -> CommandOutput:
        found = await ask(connection, ListCommands(), CommandList)
        nothing = "no worker offers a command"
        return Listing(found.commands, _COLUMNS, lambda c: c.name, nothing=nothing)

    invocation.talk(work)


@click.command("run-command", cls=CliCommand)
@click.argument("command")
@click.argument("values", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--worker", "workers", multiple=True, metavar="NAME", help="Run on this worker; repeatable."
)
@click.option("--group", default="", metavar="GROUP", help="Run on the workers of this group.")
@click.option(
    "--all", "everywhere", is_flag=True, help="Run on all workers that offer the command."
)
@pass_invocation
def run_command(
    invocation: Invocation,
    command: str,
    values: tuple[str, ...],
    workers: tuple[str, ...],
    group: str,
    everywhere: bool,
) -> None:
    """Run a command at workers that offer it. For admins.

    The status is not 0 if it fails on one of them.
    """
    if everywhere == bool(workers or group):
        raise UsageError("where?", hint="one of --all, --worker NAME and --group GROUP")
    texts = _texts(values)

    async def work(connection: Connection) -> None:
        found = await ask(connection, ListCommands(), CommandList)
        longest = [each.timeout_seconds for each in found.commands if each.name == command]
        if not longest:
            raise NotFound(
                f"no worker offers the command {command}", hint="kestrelctl worker commands"
            )
        request = RunAtWorkers(name=command, values=texts, workers=list(workers), group=group)
        answer = await ask(connection, request, CommandResults, max(longest) + ANSWER_SECONDS)
        await invocation.show(
            Listing(answer.results, _RESULT_COLUMNS, lambda r: r.worker, nothing="nobody ran it")
        )
        failed = Counter(bool(each.error) for each in answer.results)[True]
        if failed:
            raise KestrelError(
                f"{command} failed at {plural(failed, 'worker')} of {len(answer.results):,}"
            )

    invocation.talk(work, as_admin=True)


def _texts(words: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or name in found:
            raise UsageError(f"{word[:80]!r} cannot be read", hint="NAME=VALUE, each once")
        found[name] = text
    return found
