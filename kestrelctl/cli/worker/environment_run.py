"""`kestrelctl worker environment`: makes one environment by hand, with a worker in it."""

from __future__ import annotations

import asyncio
import fcntl
import secrets
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.until_signal import until_a_signal
from kestrelctl.core.environments.class_files import read_classes
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.model.worker import isolation
from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.grammar.click_types import FilePath
from kestrelctl.grammar.quantities import parse_capacity
from kestrelctl.protocol.workers import decode_token

_LOOK_SECONDS = 0.5


@click.command("environment", cls=CliCommand, talks=False)
@click.argument("file", type=FilePath())
@click.argument("name", metavar="CLASS")
@click.argument("token")
@click.option(
    "--isolation",
    "rung",
    type=click.Choice(["auto", *isolation.RUNGS]),
    default="auto",
    show_default=True,
    help="Isolation between tasks in there; auto is the best that works.",
)
@pass_invocation
def environment(invocation: Invocation, /, file: Path, name: str, token: str, rung: str) -> int:
    """Make an environment of a CLASS in FILE, with a worker that joins by a TOKEN.

    It is there until a signal ends this command, or its worker leaves. `-` for TOKEN reads it from
    standard input.
    """
    from kestrelctl.core.environments.names import EnvironmentOwner
    from kestrelctl.core.environments.worker_command import worker_command
    from kestrelctl.core.members.enrollment import as_name, parse_invitation
    from kestrelctl.local.pool_state import pools_directory
    from kestrelctl.worker.environments.driver_choice import driver_of, program_in
    from kestrelctl.worker.environments.environment_driver import sweep

    wanted = _class(file, name)
    if wanted.runs:
        raise UsageError(
            f"{name} starts no worker", hint=f"`kestrelctl environment start {name}` starts one"
        )
    token = (sys.stdin.read() if token == "-" else token).strip()
    found = decode_token(token)
    invitation = parse_invitation(found.jid.partition("@")[0])
    fixed = invitation.name if invitation is not None else ""
    here = f"{name}@{socket.gethostname()}"
    owner = EnvironmentOwner(found.pool, f"{here}/{fixed}" if fixed else here)
    worker = fixed or as_name(f"{name}-{secrets.token_hex(4)}")  # accounts are not used again
    root = pools_directory().parent / "environments" / owner.prefix.rstrip("-")
    driver = driver_of(wanted.kind, root, owner)
    command = worker_command(wanted, worker, program=program_in(wanted.kind), isolation=rung)

    async def stay() -> None:
        own = owner.name(1)
        await sweep(driver)
        await driver.collect(())  # what other recipes of this class have made
        prepared = await driver.prepare(wanted)
        try:
            await driver.start(own, wanted, prepared, command, token)
            invocation.screen.say(f"environment {own} runs; its worker joins as {worker}")
            while (now := (await driver.status())[own]).running:
                await asyncio.sleep(_LOOK_SECONDS)
            raise KestrelError(f"environment {own} has ended", cause=now.said or None)
        finally:
            await asyncio.shield(driver.stop(own))

    with ExitStack() as opened:
        _hold(root, opened)
        asyncio.run(until_a_signal(stay()))
    return 0


def _class(file: Path, name: str) -> EnvironmentClass:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read", cause=str(error)) from None
    classes = read_classes(text, str(file.absolute()), parse_capacity)
    if name not in classes:
        raise NotFound(f"{file} has no class {name}", hint=f"one of {', '.join(sorted(classes))}")
    return classes[name]


def _hold(root: Path, opened: ExitStack) -> None:
    """Locks the directory against a second such command. Raises UsageError if there is one."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = opened.enter_context((root / "lock").open("w"))
    except OSError as error:
        raise KestrelError(f"{root} cannot be written", cause=error.strerror) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError("this environment is there already", cause=f"{root} is in use") from None
