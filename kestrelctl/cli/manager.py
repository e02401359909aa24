"""`kestrelctl manager …`: be the manager of a pool, and keep copies of what it knows."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kestrelctl.cli.command import CliCommand, Invocation, Noun, pass_invocation
from kestrelctl.cli.command_output import Record
from kestrelctl.core.model.plural import plural

if TYPE_CHECKING:
    from kestrelctl.store.backup import Copy


_copied_data_dir = click.option(
    "--data-dir",
    type=Path,
    metavar="DIR",
    help="Of the manager.  [default: $XDG_STATE_HOME/kestrel/manager]",
)


@click.group("manager", cls=Noun)
def manager() -> None:
    """Run the manager of a pool; copy its store."""


@manager.command("run", cls=CliCommand, talks=False)
@click.option("--domain", required=True, help="XMPP domain of the pool: that of the component.")
@click.option(
    "--secret-file",
    type=Path,
    required=True,
    metavar="FILE",
    help="What the component shares with the server; - is standard input.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Of the server.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=5347,
    show_default=True,
    help="For components.",
)
@click.option(
    "--tls/--no-tls",
    default=False,
    show_default=True,
    help="Whether that port is one for TLS; off only on loopback.",
)
@click.option(
    "--ca-file",
    type=Path,
    metavar="FILE",
    help="Certificate of the pool's authority.  [default: the system's authorities]",
)
@click.option(
    "--data-dir",
    type=Path,
    metavar="DIR",
    help="For the store.  [default: $XDG_STATE_HOME/kestrel/manager]",
)
@click.option(
    "--worker-host",
    "worker_hosts",
    multiple=True,
    metavar="DOMAIN",
    help="Whose accounts may join as workers; repeatable.  [default: workers.DOMAIN]",
)
@click.option(
    "--user-host",
    "user_hosts",
    multiple=True,
    metavar="DOMAIN",
    help="Whose accounts may submit; repeatable.  [default: users.DOMAIN]",
)
@click.option(
    "--admin",
    "admins",
    multiple=True,
    metavar="JID",
    help="Who may touch anybody's jobs, and workers; repeatable.",
)
@click.option(
    "--share-jobs",
    is_flag=True,
    help="Users see each other's commands and tasks; else only whose jobs there are.",
)
@click.option(
    "--max-account-cpus",
    type=click.FloatRange(0, min_open=True),
    default=512,
    show_default=True,
    help="What the workers of one account may offer together.",
)
@click.option(
    "--metrics", default="", metavar="HOST:PORT", help="Serve Prometheus there.  [default: off]"
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@pass_invocation
def run(invocation: Invocation, /, data_dir: Path | None, **options: Any) -> None:
    """Run the manager in the foreground, until SIGTERM."""
    from kestrelctl.manager import manager_daemon
    from kestrelctl.manager.manager_options import ManagerOptions

    data_dir = data_dir or _default_data_dir()
    manager_daemon.run(
        ManagerOptions(data_dir=data_dir, verbose=invocation.screen.verbose, **options)
    )


@manager.command("backup", cls=CliCommand, talks=False)
@click.argument("file", type=Path)
@_copied_data_dir
@pass_invocation
def backup(invocation: Invocation, file: Path, data_dir: Path | None) -> None:
    """Copy the store into FILE; the manager may be running."""
    from kestrelctl.store.backup import back_up

    _show_copy(invocation, back_up(data_dir or _default_data_dir(), file), "holds")


@manager.command("restore", cls=CliCommand, talks=False)
@click.argument("file", type=Path)
@_copied_data_dir
@click.option("--dry-run", is_flag=True, help="Only check that FILE could be restored.")
@pass_invocation
def restore(invocation: Invocation, file: Path, data_dir: Path | None, dry_run: bool) -> None:
    """Put FILE in the place of the store, which is kept beside it. Stop the manager before."""
    from kestrelctl.store import backup

    if dry_run:
        _show_copy(invocation, backup.checked(file), "holds")
        return
    data_dir = data_dir or _default_data_dir()
    set_aside = data_dir / time.strftime("replaced-%Y%m%dT%H%M%SZ", time.gmtime(invocation.now()))
    _show_copy(invocation, backup.restore(file, data_dir, set_aside), "now holds")
    if set_aside.exists():
        invocation.screen.say(f"what was there before is in {set_aside}")


def _show_copy(invocation: Invocation, copy: Copy, verb: str) -> None:
    active = f"{copy.active_jobs:,} of them active"
    summary = f"{copy.file} {verb} {plural(copy.jobs, 'job')}, {active}"
    asyncio.run(invocation.show(Record(copy.file, copy, [summary])))


def _default_data_dir() -> Path:
    from kestrelctl.local.pool_state import pools_directory

    return pools_directory().parent / "manager"
