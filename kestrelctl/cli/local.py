"""`kestrelctl up` and `down`: a pool on this machine."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.access.context import DEFAULT_LOCAL_POOL, named_local_pool, usual_local_pool
from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.cli.manager.mail_options import mail_options, mail_words
from kestrelctl.cli.show.command_output import Record
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import KestrelError, UsageError
from kestrelctl.grammar.click_types import FilePath, WholeNumber

if TYPE_CHECKING:
    from kestrelctl.local.control import KeptJobs

#: Each worker has an account and a connection: more would fill the disk before the pool is up.
MOST_WORKERS = 100_000
#: Words behind the options are let through: `_named` then says how to name the pool instead.
_EXTRA_WORDS = {"allow_extra_args": True}
#: A line that shows a first result when it is pasted into a shell.
FIRST_JOB = (
    "kestrelctl submit --array 1-3 --wait -- echo hello from task {} "
    "&& kestrelctl job logs last --all"
)


@click.command(
    "up",
    cls=CliCommand,
    context_settings=_EXTRA_WORDS,
    examples=("kestrelctl up", "kestrelctl up --name test --workers 2"),
    option_sections={
        "The pool": "name workers isolation flock executor",
        "Files that the pool reads": "environments properties commands handlers triggers",
        "Accounts at other servers": "domain federated-domain remote-user certificate key "
        "federation-listen",
        "Mail": "smtp smtp-tls smtp-user smtp-password-file mail-from",
    },
)
@click.option("--name", help="Name of the pool, as --pool.  [default: default]")
@click.option(
    "--workers",
    type=WholeNumber(0, MOST_WORKERS),
    default=0,
    metavar="N",
    help="Number of workers, of one processor each.  [default: one worker with the whole machine]",
)
@click.option(
    "--executor",
    type=click.Choice(["process", "inline"]),
    default="process",
    show_default=True,
    help="Run tasks as processes, or (inline, to measure a pool) only wait as long as they "
    "would take.",
)
@click.option(
    "--isolation",
    type=click.Choice(["auto", *RUNGS]),
    default="plain",
    show_default=True,
    help="Isolation between tasks; here all tasks are your own.",
)
@click.option(
    "--domain",
    default="",
    metavar="NAME",
    help="XMPP domain of a new pool; a pool keeps its domain.  [default: kestrel.localhost]",
)
@click.option(
    "--federated-domain",
    "federated_domains",
    multiple=True,
    metavar="DOMAIN",
    help="Domain of another server whose accounts may reach the pool; repeatable.  [default: none]",
)
@click.option(
    "--remote-user",
    "remote_users",
    multiple=True,
    metavar="JID",
    help="Account at such a server that may submit jobs, with your rights; repeatable.  "
    "[default: none]",
)
@click.option(
    "--certificate",
    type=FilePath(),
    metavar="FILE",
    help="Certificate of the domain, which other servers verify.",
)
@click.option("--key", type=FilePath(), metavar="FILE", help="Private key of the certificate.")
@click.option(
    "--federation-listen",
    default="",
    metavar="ADDRESS:PORT",
    help="Address at which other servers connect.  [default: port 5269 of all addresses]",
)
@click.option(
    "--flock",
    default="",
    metavar="NAME",
    help="Share idle workers with this pool of this machine and its flock; the first pool of a "
    "flock names itself.  [default: no flock]",
)
@click.option(
    "--environments",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of environments that are started here when work needs them; repeatable.",
)
@click.option(
    "--properties",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of properties that workers read of this machine, and how often; repeatable.",
)
@click.option(
    "--commands",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of commands that you can run with `worker run-command`; repeatable.",
)
@click.option(
    "--handlers",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of handlers, which run when workers come, go or change; repeatable.",
)
@click.option(
    "--triggers",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of triggers, which act when the pool is in a given state; repeatable.",
)
@mail_options
@pass_invocation
def up(
    invocation: Invocation,
    name: str | None,
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
    """Start a pool on this machine, for you alone.

    It has a private XMPP server, a manager and workers. It goes on with the jobs that `down` kept.
    """
    from kestrelctl.local import control, other_servers

    pool_name = _named(invocation, name) or DEFAULT_LOCAL_POOL
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
            pool_name,
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
        kept = control.kept_jobs(pool_name)
        if kept and kept.jobs:
            invocation.screen.say(f"it goes on with {kept}")

    asyncio.run(work())
    invocation.screen.pool = _named_if_needed(invocation, pool_name)
    invocation.screen.say(f"next: {FIRST_JOB}")


def _named(invocation: Invocation, name: str | None) -> str:
    """The pool of this machine that `--name`, `--pool` or `KESTREL_POOL` names; empty for none.

    Raises:
        UsageError: the two options differ, the name is given without an option, or the pool is not
            one of this machine.
    """
    context = click.get_current_context()
    if context.args:
        command = context.command_path
        raise UsageError(
            f"`{command}` takes no argument: {context.args[0]!r}",
            cause="the name of the pool is an option",
            hint=f"{command} --name {shlex.quote(context.args[0])}",
        )
    if name is None:
        return named_local_pool(invocation.pool)
    if invocation.pool not in ("", name):
        raise UsageError(
            "--name and --pool name two pools",
            cause=f"--name is {name}, --pool is {invocation.pool}",
            hint="leave one of them out",
        )
    return name


def _named_if_needed(invocation: Invocation, name: str) -> str:
    """The pool's name for `--pool`; empty if a command without `--pool` asks that pool anyway."""
    if name != DEFAULT_LOCAL_POOL:
        return name
    try:
        usual = invocation.find_context("")
    except KestrelError:  # the choice is the user's: the configuration has several pools
        return name
    return "" if usual.name == name else name


@click.command(
    "down",
    cls=CliCommand,
    context_settings=_EXTRA_WORDS,
    examples=("kestrelctl down", "kestrelctl down --name test"),
)
@click.option(
    "--name", help="Name of the pool, as --pool.  [default: default, or the only one here]"
)
@click.option(
    "--delete", is_flag=True, help="Delete its jobs and results, too.  [default: keep them]"
)
@click.option("--yes", "-y", is_flag=True, help="Go ahead without asking.")
@pass_invocation
def down(invocation: Invocation, name: str | None, delete: bool, yes: bool) -> None:
    """Stop a pool on this machine; `up` goes on with its jobs."""
    from kestrelctl.local import control

    named = _named(invocation, name)
    pool = named or usual_local_pool()

    async def work() -> None:
        running = await control.running_tasks(pool)
        kept = control.kept_jobs(pool)
        if not yes and sys.stdin.isatty():
            _confirm(pool, running, _deleted(kept) if delete else "")
        await control.down(pool, delete=delete)
        await invocation.show(Record(pool, {"name": pool}, [f"pool {pool} is down"]))
        is_bare = not named and pool == DEFAULT_LOCAL_POOL
        up = "kestrelctl up" if is_bare else f"kestrelctl up --name {pool}"
        if running:
            again = "" if delete else f"; they run again after `{up}`"
            invocation.screen.say(f"running tasks were ended: {running:,}{again}")
        if kept and kept.jobs:
            kept_or_not = "deleted" if delete else f"kept; `{up}` goes on with them"
            invocation.screen.say(f"{kept}: {kept_or_not}")

    asyncio.run(work())


def _deleted(kept: KeptJobs | None) -> str:
    """Says what is deleted with the store; empty if there is nothing in it."""
    if kept is None:
        return "all its jobs (the store cannot be read)"
    return f"{plural(kept.jobs, 'job')} with all results" if kept.jobs else ""


def _confirm(name: str, running: int, deleted: str) -> None:
    """Asks if something would be lost or run a second time. Aborts if the answer is no."""
    lost = [f"{plural(running, 'task')} that run"] if running else []
    lost += [deleted] if deleted else []
    if lost:
        click.confirm(f"End pool {name}, and {' and '.join(lost)}?", abort=True, err=True)
