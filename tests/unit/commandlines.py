"""All commands, and a line for each."""

from __future__ import annotations

from collections.abc import Iterator

import click
from cli_fake_pool import CONTEXT, ENROLLED

from kestrelctl.cli.main import COMMANDS, kestrelctl
from kestrelctl.protocol.workers import Token

TOKEN = Token(
    host=CONTEXT.host,
    port=CONTEXT.port,
    pool=CONTEXT.pool,
    jid=ENROLLED.jid,
    password=ENROLLED.password,
)


#: Each command that talks to a pool, and the name that it prints when quiet.
COMMAND_LINES = {
    "submit -- sleep 1": "7",
    "submit --wait -- sleep 1": "7",
    "job list": "7",
    "job info 7": "7",
    "job history": "7",
    "job tasks 7": "17",
    "job wait 7": "7",
    "job cancel 7": "7",
    "job hold 7": "7",
    "job release 7": "7",
    "job logs 7 17": "hello",
    "job logs 7 --all": "==> task 17 <==\nhello",
    "job retry 7": "7",
    "job scale 7 3": "7",
    "job explain 7": "7",
    "job graph 7": "7",
    "job story 7": "7",
    "job forget 7": "7",
    "worker list": "w1@workers.example.org/k3bW0",
    "worker info w1": "w1@workers.example.org/k3bW0",
    "worker drain w1": "w1@workers.example.org/k3bW0",
    "worker resume w1": "w1@workers.example.org/k3bW0",
    "worker resize w1 cpus=4": "w1@workers.example.org/k3bW0",
    "worker revoke w1": "w1@workers.example.org",
    "worker group list": "gpu",
    "worker properties": "load",
    "trigger list": "busy",
    "trigger log": "busy",
    "trigger test busy": "busy",
    "trigger enable busy": "busy",
    "trigger disable busy": "busy",
    "worker commands": "clean-cache",
    "worker run-command clean-cache days=3 --all": "w1@workers.example.org/k3bW0",
    "worker group set gpu --tag gpu": "gpu",
    "worker group delete gpu": "gpu",
    "worker enroll": TOKEN.encode(),
    "user usage": "ada@users.example.org",
    "user list": "ada@users.example.org",
    "user info ada": "ada@users.example.org",
    "user set ada --weight 2": "ada@users.example.org",
    "user mail ada@example.org": "ada@users.example.org",
    "group list": "physics",
    "group info physics": "physics",
    "group set physics": "physics",
    "group remove physics": "physics",
    "pool status": "ok",
    "manager handover": "host-b",
    "pool events": "7",
    "pool policy list": "lean",
    "pool policy info lean": "lean",
    "pool policy set lean -": "lean",
    "pool policy remove lean": "lean",
    "pool asset list": "matlab",
    "pool asset set matlab 5": "matlab",
    "pool asset remove matlab": "matlab",
    "flock status": "pool.example.org",
    "flock pools": "b.example.org",
    "flock join b.example.org": "b.example.org",
    "flock forget b.example.org": "b.example.org",
    "flock leave": "left",
    "flock ping b.example.org": "b.example.org",
    "environment list": "4194305",
    "environment explain science": "science",
    "environment start science": "4194306",
    "environment stop 4194305": "4194305",
    "flock policy list": "friends",
    "flock policy set eve --lend --deny": "eve",
    "flock policy remove eve": "eve",
    "top": "ok",
}


#: Those that do not; their modules have tests of their own.
WITHOUT_POOL = {
    "up",
    "down",
    "bench",
    "map",
    "job fetch",
    "worker run",
    "worker join",
    "worker environment",
    "worker service",
    "manager run",
    "manager backup",
    "manager restore",
    "manager migrate",
    "fleet bundle",
    "fleet logs",
    "fleet restart",
    "fleet run",
    "fleet status",
    "bench compare",
    "bench environments",
    "bench flock",
    "bench properties",
    "bench flock-sim",
    "bench report",
    "pool chat",
    "pool metrics",
    "pool traffic",
    "context add",
    "context list",
    "context remove",
    "context show",
    "context use",
    "doctor",
    "dashboards push",
    "dashboards pull",
    "dashboards diff",
    "dashboards snapshot",
}


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command of the tree, by its full name."""
    context = click.Context(kestrelctl)
    for name in COMMANDS:
        command = kestrelctl.get_command(context, name)
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield name, command
            for verb in command.list_commands(context):
                leaf = command.get_command(context, verb)
                assert leaf is not None
                if isinstance(leaf, click.Group):
                    yield from ((f"{name} {verb} {v}", each) for v, each in leaf.commands.items())
                else:
                    yield f"{name} {verb}", leaf
        else:
            assert command is not None
            yield name, command


LEAVES = dict(leaves())


#: The width for which help is made.
WIDTH = 100


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Context]]:
    yield context.command_path.partition(" ")[2], context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from walk(below, click.Context(below, context, name))


#: Each command and group by its name, the program itself by an empty one.
EVERYTHING = dict(
    walk(
        kestrelctl,
        click.Context(
            kestrelctl,
            info_name="kestrelctl",
            terminal_width=WIDTH,
            **kestrelctl.context_settings,
        ),
    )
)


def options(name: str) -> list[click.Option]:
    """The options that help of a command shows."""
    params = EVERYTHING[name].command.get_params(EVERYTHING[name])
    return [param for param in params if isinstance(param, click.Option) and not param.hidden]
