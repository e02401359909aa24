"""`kestrelctl up` and `down`: a pool on this machine."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.command_output import Record
from kestrelctl.cli.context import DEFAULT_LOCAL_POOL
from kestrelctl.cli.mail_options import mail_options, mail_words
from kestrelctl.core.model.isolation import RUNGS
from kestrelctl.core.model.plural import plural
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import WholeNumber

if TYPE_CHECKING:
    from kestrelctl.local.control import KeptJobs


@click.command("up", cls=CliCommand, talks=False)
@click.option("--name", default=DEFAULT_LOCAL_POOL, show_default=True, help="Of the pool.")
@click.option(
    "--workers",
    type=WholeNumber(0),
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
@click.option(
    "--domain",
    default="",
    metavar="NAME",
    help="XMPP domain of the pool, which it keeps.  [default: kestrel.localhost]",
)
@click.option(
    "--federated-domain",
    "federated_domains",
    multiple=True,
    metavar="DOMAIN",
    help="Accounts at that other server reach the pool; repeatable.  [default: none]",
)
@click.option(
    "--remote-user",
    "remote_users",
    multiple=True,
    metavar="JID",
    help="An account there that may submit, with your rights; repeatable.",
)
@click.option("--certificate", type=Path, metavar="FILE", help="Of the domain, for other servers.")
@click.option("--key", type=Path, metavar="FILE", help="Of the certificate.")
@click.option(
    "--federation-listen",
    default="",
    metavar="ADDRESS:PORT",
    help="Where other servers connect to.  [default: port 5269 of all addresses]",
)
@click.option(
    "--flock",
    default="",
    metavar="NAME",
    help="Share idle workers with that pool on this machine and its others; its own name for the "
    "first of a flock.  [default: none]",
)
@click.option(
    "--environments",
    type=Path,
    multiple=True,
    metavar="FILE",
    help="Classes of environments, which are started here when work needs them; repeatable.",
)
@click.option(
    "--properties",
    type=Path,
    multiple=True,
    metavar="FILE",
    help="What workers read of this machine, and how often; repeatable.",
)
@click.option(
    "--commands",
    type=Path,
    multiple=True,
    metavar="FILE",
    help="What you may have workers run with `worker run-command`; repeatable.",
)
@click.option(
    "--handlers",
    type=Path,
    multiple=True,
    metavar="FILE",
    help="What is done when workers come, go or change; repeatable.",
)
@click.option(
    "--triggers",
    type=Path,
    multiple=True,
    metavar="FILE",
    help="What is done when the pool is in some state; repeatable.",
)
@mail_options
@pass_invocation
def up(
    invocation: Invocation,
    name: str,
    workers: int,
    executor: str,
    isolation: str,
    domain: str,
    federated_domains: tuple[str, ...],
    remote_users: tuple[str, ...],
    certificate: Path | None,
    key: Path | None,
    federation_listen: str,
    flock: str,
    environments: tuple[Path, ...],
    properties: tuple[Path, ...],
    commands: tuple[Path, ...],
    handlers: tuple[Path, ...],
    triggers: tuple[Path, ...],
    **mail: Any,
) -> None:
    """Start a pool on this machine: a server, a manager and workers, for you alone."""
    from kestrelctl.local import control, other_servers

    words = mail_words(mail)
    if domain:
        domain = other_servers.parse_domain(domain)
    federation = other_servers.federation_of(
        federated_domains, remote_users, certificate, key, federation_listen
    )
    if flock and federation is not None:
        raise UsageError(
            "a pool shares with pools of this machine or is reached by other servers, not both",
            cause="--flock is about the first, --federated-domain about the second",
        )

    async def work() -> None:
        pool = await control.up(
            name,
            workers,
            executor,
            isolation,
            domain=domain,
            federation=federation,
            flock=flock,
            environments=environments,
            properties=properties,
            commands=commands,
            handlers=handlers,
            triggers=triggers,
            mail=words,
        )
        summary = f"pool {pool.name} is up: {plural(pool.workers, 'worker')}"
        await invocation.show(Record(pool.name, pool, [summary]))
        kept = control.kept_jobs(name)
        if kept and kept.jobs:
            invocation.screen.say(f"it goes on with {kept}")

    asyncio.run(work())
    which = "" if name == DEFAULT_LOCAL_POOL else f"--pool {name} "
    invocation.screen.say(f"next: kestrelctl submit {which}--array 1-10 -- echo {{}}")


@click.command("down", cls=CliCommand, talks=False)
@click.option("--name", default=DEFAULT_LOCAL_POOL, show_default=True, help="Of the pool.")
@click.option("--delete", is_flag=True, help="Its jobs and results, too; they are kept otherwise.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@pass_invocation
def down(invocation: Invocation, name: str, delete: bool, yes: bool) -> None:
    """Stop a pool on this machine; `up` goes on with its jobs."""
    from kestrelctl.local import control

    async def work() -> None:
        running = await control.running_tasks(name)
        kept = control.kept_jobs(name)
        if not yes and sys.stdin.isatty():
            _confirm(name, running, _deleted(kept) if delete else "")
        await control.down(name, delete=delete)
        await invocation.show(Record(name, {"name": name}, [f"pool {name} is down"]))
        up = "kestrelctl up" if name == DEFAULT_LOCAL_POOL else f"kestrelctl up --name {name}"
        if running:
            again = "" if delete else f"; they run again after `{up}`"
            invocation.screen.say(f"running tasks were ended: {running:,}{again}")
        if kept and kept.jobs:
            kept_or_not = "deleted" if delete else f"kept; `{up}` goes on with them"
            invocation.screen.say(f"{kept}: {kept_or_not}")

    asyncio.run(work())


def _deleted(kept: KeptJobs | None) -> str:
    """What goes with the store, in words; empty if there is nothing in it."""
    if kept is None:
        return "all its jobs (the store cannot be read)"
    return f"{plural(kept.jobs, 'job')} with all results" if kept.jobs else ""


def _confirm(name: str, running: int, deleted: str) -> None:
    """Asks, if something would be lost or run a second time. Abort if the answer is no."""
    lost = [f"{plural(running, 'task')} that run"] if running else []
    lost += [deleted] if deleted else []
    if lost:
        click.confirm(f"End pool {name}, and {' and '.join(lost)}?", abort=True, err=True)
