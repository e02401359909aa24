"""`kestrelctl manager …`: runs the manager of a pool, and copies its store."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.manager.mail_options import mail_options, mail_server
from kestrelctl.cli.manager.metrics_options import metrics_address, metrics_allow
from kestrelctl.cli.manager.send_limit_option import send_limit_option
from kestrelctl.cli.show.command_output import Record
from kestrelctl.cli.user.share_options import parse_byte_bound
from kestrelctl.core.model.config import (
    SHORTEST_HALF_LIFE_SECONDS,
    SHORTEST_STARVING_SECONDS,
    SHORTEST_USAGE_SECONDS,
    Config,
)
from kestrelctl.core.model.neighbour import RECLAIM_MINUTES
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import NotFound, UsageError
from kestrelctl.grammar.click_types import FilePath, Number, WholeNumber
from kestrelctl.grammar.quantities import parse_digits, parse_duration

if TYPE_CHECKING:
    from kestrelctl.store.backup import Copy


#: The shortest time for which ended jobs are kept.
SHORTEST_KEEP_SECONDS = 60.0

_copied_data_dir = click.option(
    "--data-dir",
    type=FilePath(),
    metavar="DIR",
    help="Directory of the manager.  [default: that of the pool of `up`, or "
    "$XDG_STATE_HOME/kestrel/manager]",
)

_postgresql_password_file = click.option(
    "--postgresql-password-file",
    type=FilePath(),
    metavar="FILE",
    help="File with the password of that role.  [default: PostgreSQL's own, as ~/.pgpass]",
)


def parse_usage_interval(text: str) -> float:
    """Reads an interval in seconds; 0 for `never`."""
    if text.strip() == "never":
        return 0.0
    seconds = parse_duration(text)
    if seconds < SHORTEST_USAGE_SECONDS:
        raise UsageError(
            f"an interval of {text} is too short: looking at tasks takes time of its own",
            hint="the shortest is 1s; `never` turns it off",
        )
    return seconds


def parse_half_life(text: str) -> float:
    """Reads a half-life in seconds."""
    seconds = parse_duration(text)
    if seconds < SHORTEST_HALF_LIFE_SECONDS:
        raise UsageError(
            f"a half-life of {text} is too short: what was used would be forgotten at once",
            hint="the shortest is 1m; 1d is usual",
        )
    return seconds


def parse_starving_time(text: str) -> float:
    """Reads a time in seconds."""
    seconds = parse_duration(text)
    if seconds < SHORTEST_STARVING_SECONDS:
        raise UsageError(
            f"{text} is too short: all that waits at all would starve",
            hint="the shortest is 1s; 1m is usual",
        )
    return seconds


def parse_keep_time(text: str) -> float | None:
    """Reads a time in seconds; None for `forever`."""
    if text.strip() == "forever":
        return None
    try:
        seconds = parse_duration(text)
    except UsageError as error:
        hint = "write 30d, or `forever` to keep all"
        raise UsageError(f"jobs cannot be kept for {text!r}", hint=hint) from error
    if seconds < SHORTEST_KEEP_SECONDS:
        raise UsageError(
            f"{text} is too short: whoever waits for a job could not learn how it ended",
            hint="the shortest is 1m; `forever` keeps all",
        )
    return seconds


def parse_keep_number(text: str) -> int | None:
    """Reads a number of jobs; None for `all`."""
    if text.strip() == "all":
        return None
    number = parse_digits(text.strip(), (1 << 62) - 1)
    if not number:
        raise UsageError(
            f"{text[:80]!r} is no number of jobs to keep",
            hint="write 1 or more, or `all` to keep all",
        )
    return number


@click.group("manager", cls=Noun)
def manager() -> None:
    """Run the manager of a pool; copy its store."""


@manager.command(
    "run",
    cls=CliCommand,
    talks=False,
    option_sections={
        "The server": "domain secret-file host port tls ca-file data-dir postgresql "
        "postgresql-password-file",
        "Accounts": "user-host worker-host user admin share-jobs max-account-cpus max-queued-size",
        "What is kept": "keep-jobs keep-jobs-for keep-logs files-kept max-stored events-kept",
        "Scheduling": "usage-half-life starving-after usage-interval",
        "Files that the pool reads": "environments handlers triggers",
        "Other pools": "flock flock-isolation flock-reclaim",
        "Mail": "smtp smtp-tls smtp-user smtp-password-file mail-from name",
        "How it works": "metrics metrics-allow property-metric send-limit log-format",
    },
)
@click.option("--domain", required=True, help="XMPP domain of the pool: that of the component.")
@click.option(
    "--secret-file",
    type=FilePath(),
    required=True,
    metavar="FILE",
    help="File with the secret that component and server share; - is standard input.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Host name or address of the XMPP server.",
)
@click.option(
    "--port",
    type=WholeNumber(1, 65535),
    default=5347,
    show_default=True,
    help="Port of the server for components.",
)
@click.option(
    "--tls/--no-tls",
    default=False,
    show_default=True,
    help="Use TLS at that port; --no-tls is only for a server on this machine.",
)
@click.option(
    "--ca-file",
    type=FilePath(),
    metavar="FILE",
    help="Certificate of the pool's authority.  [default: the system's authorities]",
)
@click.option(
    "--data-dir",
    type=FilePath(),
    metavar="DIR",
    help="Directory of the store.  [default: $XDG_STATE_HOME/kestrel/manager]",
)
@click.option(
    "--postgresql",
    default="",
    metavar="CONNINFO",
    help="Keep the store in this PostgreSQL, as postgresql://USER@HOST/DATABASE or service=NAME, "
    "without a password.  [default: SQLite in --data-dir]",
)
@_postgresql_password_file
@click.option(
    "--worker-host",
    "worker_hosts",
    multiple=True,
    metavar="DOMAIN",
    help="Domain whose accounts may join as workers; repeatable.  [default: workers.DOMAIN]",
)
@click.option(
    "--user-host",
    "user_hosts",
    multiple=True,
    metavar="DOMAIN",
    help="Domain whose accounts may submit; repeatable.  [default: users.DOMAIN]",
)
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="JID",
    help="Account elsewhere that may submit; repeatable.",
)
@click.option(
    "--admin",
    "admins",
    multiple=True,
    metavar="JID",
    help="Account of an admin, who may change all jobs and workers; repeatable.",
)
@click.option(
    "--share-jobs",
    is_flag=True,
    help="Show users each other's commands and tasks.  [default: only owners and counts]",
)
@click.option(
    "--max-account-cpus",
    type=Number(0, min_open=True),
    default=512,
    show_default=True,
    help="Number of processors that the workers of one account may offer together.",
)
@click.option(
    "--usage-interval",
    "usage_seconds",
    type=parse_usage_interval,
    default=f"{Config().usage_seconds / 60:g}m",
    show_default=True,
    metavar="TIME",
    help="Time between two reports of what long tasks use; `never`.",
)
@click.option(
    "--usage-half-life",
    "usage_half_life_seconds",
    type=parse_half_life,
    default=f"{Config().usage_half_life_seconds / 86_400:g}d",
    show_default=True,
    metavar="TIME",
    help="Time after which what a user has used counts half as much against their share.",
)
@click.option(
    "--starving-after",
    "starving_seconds",
    type=parse_starving_time,
    default=f"{Config().starving_seconds / 60:g}m",
    show_default=True,
    metavar="TIME",
    help="Time without any start after which a worker, or tokens, are kept for a job.",
)
@click.option(
    "--keep-jobs-for",
    "keep_seconds",
    type=parse_keep_time,
    default="90d",
    show_default=True,
    metavar="TIME",
    help="Time for which ended jobs are kept; `forever`.",
)
@click.option(
    "--keep-jobs",
    type=parse_keep_number,
    default="100000",
    show_default=True,
    metavar="N",
    help="Number of ended jobs that are kept; `all`.",
)
@click.option(
    "--events-kept",
    "events_kept_seconds",
    type=parse_duration,
    default="7d",
    show_default=True,
    metavar="TIME",
    help="Time for which events of workers are kept.",
)
@click.option(
    "--keep-logs",
    is_flag=True,
    help="Keep the whole output of all tasks in the file share, as with `submit --keep-logs`.",
)
@click.option(
    "--max-stored",
    "max_stored_bytes",
    type=parse_byte_bound,
    default="none",
    show_default=True,
    metavar="SIZE",
    help="Size of what each user's tasks may keep in the file share; `user set` overrides it.",
)
@click.option(
    "--max-queued-size",
    "max_queued_bytes",
    type=parse_byte_bound,
    default=f"{(Config().max_queued_bytes or 0) >> 20}M",
    show_default=True,
    metavar="SIZE",
    help="Size of what the jobs of an account that have not ended may say together: commands, "
    "variables, items. `user set` overrides it; `none` is no limit.",
)
@click.option(
    "--files-kept",
    "files_kept_seconds",
    type=parse_duration,
    default=f"{Config().files_kept_seconds / 86_400:g}d",
    show_default=True,
    metavar="TIME",
    help="Time for which the server's file share keeps files, and --max-stored counts them.",
)
@metrics_address
@metrics_allow
@mail_options
@click.option(
    "--name",
    default="",
    metavar="NAME",
    help="Name of the pool, as its users give it to --pool, for commands in mails.  [default: the "
    "domain]",
)
@click.option(
    "--flock",
    default="",
    metavar="DOMAIN",
    help="Join the flock of this pool; the first pool of a flock names itself.  [default: no "
    "flock]",
)
@click.option(
    "--flock-minute",
    "flock_minute_seconds",
    type=Number(0, min_open=True),
    default=60.0,
    hidden=True,
    help="Seconds: the unit in which pools of a flock tell each other things.",
)
@click.option(
    "--flock-reclaim",
    "flock_reclaim_minutes",
    type=Number(0),
    default=RECLAIM_MINUTES,
    show_default=True,
    metavar="MINUTES",
    help="Minutes that tasks of other pools may go on while own tasks wait for their places.",
)
@click.option(
    "--flock-fixed",
    multiple=True,
    hidden=True,
    metavar="DOMAIN",
    help="A pool of a flock that does not find itself; to see what finding is worth.",
)
@click.option(
    "--flock-any-workdir",
    is_flag=True,
    hidden=True,
    help="Tasks of other pools may start in any directory: all are of one user and one machine.",
)
@click.option(
    "--flock-isolation",
    type=click.Choice(RUNGS),
    default="bubblewrap",
    show_default=True,
    help="Isolation that tasks of other pools get at least, unless a rule says otherwise.",
)
@click.option(
    "--environments",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of environments that are started when work needs them; repeatable.",
)
@click.option(
    "--handlers",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of handlers, which run when workers come, go or change; repeatable.  [default: "
    "none]",
)
@click.option(
    "--triggers",
    type=FilePath(),
    multiple=True,
    metavar="FILE",
    help="File of triggers, which act when the pool is in a given state; repeatable.  [default: "
    "none]",
)
@click.option(
    "--property-metric",
    "property_metrics",
    multiple=True,
    metavar="NAME",
    help="Property of workers to show among the metrics; repeatable.  [default: none]",
)
@send_limit_option
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the log on standard error.",
)
@pass_invocation
def run(invocation: Invocation, /, data_dir: Path | None, **given: Any) -> None:
    """Run the manager in the foreground, until SIGTERM."""
    from kestrelctl.flock.service.open_flock import open_flock
    from kestrelctl.manager import daemon
    from kestrelctl.manager.options import ManagerOptions

    data_dir = data_dir or _default_data_dir()
    mail = mail_server(given)
    verbose = invocation.screen.verbose
    options = ManagerOptions(data_dir=data_dir, mail=mail, verbose=verbose, **given)
    daemon.run(options, open_flock)


@manager.command("handover", cls=CliCommand)
@pass_invocation
def handover(invocation: Invocation) -> None:
    """Have a manager that stands by lead the pool; the one that leads stands by then."""
    from kestrelctl.protocol.requests import HandOver

    invocation.change(
        HandOver(), lambda done: f"the pool goes on with the manager on {done.what[0]}"
    )


@manager.command("backup", cls=CliCommand)
@click.argument("file", type=FilePath())
@_copied_data_dir
@pass_invocation
def backup(invocation: Invocation, file: Path, data_dir: Path | None) -> None:
    """Copy the store into FILE; the manager may be running."""
    from kestrelctl.store.backup import back_up

    copy = back_up(_store_of(invocation, data_dir), file)
    _show_copy(invocation, copy, "holds")


@manager.command("restore", cls=CliCommand)
@click.argument("file", type=FilePath())
@_copied_data_dir
@click.option(
    "--dry-run", is_flag=True, help="Check that FILE can be restored, and change nothing."
)
@pass_invocation
def restore(invocation: Invocation, file: Path, data_dir: Path | None, dry_run: bool) -> None:
    """Put FILE in the place of the store, which is kept beside it. Stop the manager first."""
    from kestrelctl.store import backup

    if dry_run:
        _show_copy(invocation, backup.checked(file), "holds")
        return
    data_dir = _store_of(invocation, data_dir)
    set_aside = data_dir / time.strftime("replaced-%Y%m%dT%H%M%SZ", time.gmtime(invocation.now()))
    _show_copy(invocation, backup.restore(file, data_dir, set_aside), "now holds")
    if set_aside.exists():
        invocation.screen.say(f"what was there before is in {set_aside}")


@manager.command("migrate", cls=CliCommand)
@_copied_data_dir
@click.option(
    "--postgresql",
    required=True,
    metavar="CONNINFO",
    help="PostgreSQL to move the store into, as for `manager run`.",
)
@_postgresql_password_file
@pass_invocation
def migrate(
    invocation: Invocation,
    data_dir: Path | None,
    postgresql: str,
    postgresql_password_file: Path | None,
) -> None:
    """Move the store from SQLite into PostgreSQL. Stop the manager first; repeat what was
    interrupted.
    """
    from kestrelctl.manager.store_of import must_have_psycopg

    must_have_psycopg()
    from kestrelctl.store.postgresql.moving import move
    from kestrelctl.store.postgresql.session import password_in

    password = password_in(postgresql_password_file)
    store = _store_of(invocation, data_dir)
    moved = move(store, postgresql, invocation.screen.say, password=password)
    summary = f"{moved.database} now holds {plural(moved.jobs, 'job')}; {moved.kept} is left"
    asyncio.run(invocation.show(Record(moved.database, moved, [summary])))


def _show_copy(invocation: Invocation, copy: Copy, verb: str) -> None:
    active = f"{copy.active_jobs:,} of them active"
    summary = f"{copy.file} {verb} {plural(copy.jobs, 'job')}, {active}"
    asyncio.run(invocation.show(Record(copy.file, copy, [summary])))


def _default_data_dir() -> Path:
    from kestrelctl.local.pool_state import pools_directory

    return pools_directory().parent / "manager"


def _store_of(invocation: Invocation, data_dir: Path | None) -> Path:
    """Finds the directory where a manager on this machine keeps its store, whether it runs or not.

    Args:
        data_dir: the directory of `--data-dir`; None for the directory of the pool that is named,
            or else the manager's default directory, or else that of the usual pool of `up`.

    Raises:
        NotFound: there is no such pool.
        UsageError: there are several, or both options name one.
    """
    from kestrelctl.access.context import named_local_pool, usual_local_pool
    from kestrelctl.local.pool_state import known_pools, manager_directory

    if data_dir is not None:
        if invocation.pool:
            raise UsageError(
                "--data-dir and --pool do not go together",
                cause="each of them says whose store is meant",
                hint="leave one of them out",
            )
        return data_dir
    pool = named_local_pool(invocation.pool)
    known = known_pools()
    if pool:
        if pool not in known:
            raise NotFound(
                f"there is no pool {pool} on this machine",
                cause=f"there are {', '.join(known)}" if known else None,
                hint="a manager's own directory is named with --data-dir",
            )
        return manager_directory(pool)
    own = _default_data_dir()
    return own if own.exists() or not known else manager_directory(usual_local_pool())
