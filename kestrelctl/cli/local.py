"""`kestrelctl up` and `down`: a pool on this machine."""

from __future__ import annotations

import asyncio

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.command_output import Record
from kestrelctl.cli.context import DEFAULT_LOCAL_POOL
from kestrelctl.core.model.isolation import RUNGS
from kestrelctl.core.model.plural import plural


@click.command("up", cls=CliCommand, talks=False)
@click.option("--name", default=DEFAULT_LOCAL_POOL, show_default=True, help="Of the pool.")
@click.option(
    "--workers",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="So many of one processor each.  [default: one with all that the machine has]",
)
@click.option(
    "--executor",
    type=click.Choice(["process", "inline"]),
    default="process",
    show_default=True,
    help="Processes, or (to measure a pool) nothing but the time they would take.",
)
@click.option(
    "--isolation",
    type=click.Choice(["auto", *RUNGS]),
    default="plain",
    show_default=True,
    help="What stands between tasks; here they are all your own.",
)
@pass_invocation
def up(invocation: Invocation, name: str, workers: int, executor: str, isolation: str) -> None:
    """Start a pool on this machine: a server, a manager and workers, for you alone."""
    from kestrelctl.local import control

    async def work() -> None:
        pool = await control.up(name, workers, executor, isolation)
        summary = f"pool {pool.name} is up: {plural(pool.workers, 'worker')}"
        await invocation.show(Record(pool.name, pool, [summary]))

    asyncio.run(work())
    which = "" if name == DEFAULT_LOCAL_POOL else f"--pool {name} "
    invocation.screen.say(f"next: kestrelctl submit {which}--array 1-10 -- echo {{}}")


@click.command("down", cls=CliCommand, talks=False)
@click.option("--name", default=DEFAULT_LOCAL_POOL, show_default=True, help="Of the pool.")
@pass_invocation
def down(invocation: Invocation, name: str) -> None:
    """Stop a pool on this machine, and delete its jobs and results."""
    from kestrelctl.local import control

    async def work() -> None:
        await control.down(name)
        await invocation.show(Record(name, {"name": name}, [f"pool {name} is down"]))

    asyncio.run(work())
