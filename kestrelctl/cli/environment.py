"""`kestrelctl environment …`: workers that are started when work needs them."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec.structs import replace

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.redial import Redial
from kestrelctl.cli.show.command_output import CommandOutput, Listing, Record, Table
from kestrelctl.cli.show.grid import Column
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.assets import amounts, describe_all
from kestrelctl.errors import NotFound
from kestrelctl.grammar.quantities import ago, duration, short_address
from kestrelctl.protocol.answers import (
    EnvironmentClassView,
    EnvironmentList,
    EnvironmentView,
    StartFailureView,
)
from kestrelctl.protocol.requests import ListEnvironments, StartOneEnvironment, StopEnvironments

#: The reasons why no more environments of a class are started, in words.
OBSTACLES = {
    "not-needed": "nothing that waits needs more",
    "maximum": "there are as many as the class allows",
    "no-host": "no worker may and can make it",
    "no-room": "no worker has room for it",
    "failed": "starts have failed",
}


async def listed(connection: Connection, of: str = "") -> EnvironmentList:
    """Returns the classes and all environments, or one class and what there is of it.

    Raises:
        NotFound: there is no such class.
    """
    found = await ask(connection, ListEnvironments(of=of), EnvironmentList)
    environments, after = list(found.environments), found.after
    while after is not None:
        page = await ask(connection, ListEnvironments(of=of, after=after), EnvironmentList)
        environments += page.environments
        after = page.after
    return replace(found, environments=environments, after=None)


@click.group("environment", cls=Noun)
def environment() -> None:
    """List, start and stop workers that start on demand."""


@environment.command("list", cls=CliCommand)
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the environments that there are."""

    async def work(connection: Connection) -> CommandOutput:
        found = await listed(connection)
        now = invocation.now()
        columns: list[Column[EnvironmentView]] = [
            Column("NUMBER", lambda each: str(each.number), right=True),
            Column("CLASS", lambda each: each.of),
            Column("HOST", lambda each: short_address(each.host)),
            Column("WORKER", lambda each: each.worker),
            Column("STATE", _state),
            Column("SINCE", lambda each: ago(each.since, now)),
        ]
        known = ", ".join(each.name for each in found.classes)
        return Listing(
            found.environments,
            columns,
            lambda each: str(each.number),
            nothing=f"no environments now; classes: {known}"
            if known
            else "no environments, and no classes of them: docs/environments.md says how they are "
            "written",
            remarks=[
                f"of class {each.name}: {_failed_starts(_latest(each), now)}\n"
                f"hint: kestrelctl environment explain {each.name}"
                for each in found.classes
                if each.failures
            ],
        )

    invocation.talk(work)


@environment.command("explain", cls=CliCommand)
@click.argument("name", metavar="CLASS")
@pass_invocation
def explain(invocation: Invocation, name: str) -> None:
    """Explain the number of environments of a CLASS, and where others could start."""

    async def work(connection: Connection) -> CommandOutput:
        found = await listed(connection, name)
        for each in found.classes:
            if each.name == name:
                there = [one for one in found.environments if one.of == name]
                return explanation(each, there, invocation.now(), found.environments)
        raise NotFound(f"there is no environment class {name}", cause="there are: none")

    invocation.talk(work)


def explanation(
    found: EnvironmentClassView,
    there: list[EnvironmentView],
    now: float,
    of_all: Sequence[EnvironmentView] = (),
) -> Record:
    """Describes a class, its environments, and the obstacles to more of them.

    Args:
        of_all: also those of other classes that make room for this one.
    """
    most = f"{found.minimum} to {found.maximum}"
    blocks: list[str | tuple[str, str] | Table] = [
        ("class", f"{found.name}, of kind {found.kind}"),
        ("each has", describe_all(amounts(found.assets))),
        ("tags", ", ".join(found.tags) or "none"),
        ("there are", f"{len(there)}, of {most}"),
        ("waiting", f"{plural(found.waiting, 'task')} that it could run"),
        ("no more", OBSTACLES.get(found.obstacle, found.obstacle)),
        ("stops", f"after {duration(found.idle_seconds)} without work"),
    ]
    if found.runs:
        blocks[2:] = [
            ("runs", f"{found.runs}: no worker of this pool, but a node of something else"),
            ("there are", f"{len(there)}, of {most}"),
            ("stops", "when it ends, or is stopped"),
        ]
    if found.hosts:
        rows = [
            [short_address(host.host), describe_all(amounts(host.free)), host.why_not or "could"]
            for host in found.hosts
        ]
        headings = [("HOST", False), ("FREE", False), ("MAKES ONE", False)]
        blocks.append(Table(headings, rows))
        if found.more_hosts:
            blocks.append(f"and {plural(found.more_hosts, 'other host')}")
    else:
        blocks.append("no worker makes environments: `worker run --environments KIND` lets one")
    blocks.extend(f"{_failed_starts(failure, now)}: {failure.why}" for failure in found.failures)
    blocks.extend(
        f"environment {each.number} of class {each.of} at {short_address(each.host)} ends what it "
        f"runs and then makes room for class {each.makes_room_for}"
        for each in of_all
        if each.makes_room_for and found.name in (each.of, each.makes_room_for)
    )
    return Record(found.name, found, blocks)


@environment.command("start", cls=CliCommand)
@click.argument("name", metavar="CLASS")
@click.option(
    "--host",
    default="",
    metavar="WORKER",
    help="Worker on whose machine to start it.  [default: the one with the most room]",
)
@pass_invocation
def start(invocation: Invocation, name: str, host: str) -> None:
    """Start an environment of a CLASS, whether work needs it or not. For admins.

    It stays until it is stopped.
    """

    async def work(redial: Redial) -> CommandOutput:
        done = await redial.change(StartOneEnvironment(of=name, host=host), twice=False)
        words = f"environment {done.what[0]} of class {name} is being started"
        return Record(done.what[0], {"changed": done.what}, [words])

    invocation.talk_again(work, as_admin=True)


@environment.command("stop", cls=CliCommand)
@click.argument("numbers", nargs=-1, required=True, type=int, metavar="NUMBERS...")
@pass_invocation
def stop(invocation: Invocation, numbers: tuple[int, ...]) -> None:
    """Stop environments. For admins.

    Their tasks run again elsewhere. What work still needs is started anew.
    """

    async def work(redial: Redial) -> CommandOutput:
        done = await redial.change(StopEnvironments(numbers=list(numbers)), twice=True)
        words = [f"environment {number} is being stopped" for number in done.what]
        return Record(done.what[0], {"changed": done.what}, words)

    invocation.talk_again(work, as_admin=True)


def _latest(found: EnvironmentClassView) -> StartFailureView:
    return max(found.failures, key=lambda failure: failure.at)


def _failed_starts(failure: StartFailureView, now: float) -> str:
    words = f"{plural(failure.times, 'start')} failed at {short_address(failure.host)}, the last "
    words += ago(failure.at, now)
    pause = failure.next_try_at - now
    return f"{words}, the next try in {duration(pause)}" if pause > 0 else words


def _state(found: EnvironmentView) -> str:
    if found.phase == "ready" and found.idle_seconds is not None and not found.draining:
        return f"idle for {duration(found.idle_seconds)}"
    return "draining" if found.phase == "ready" and found.draining else found.phase
