"""`kestrelctl manager run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kestrelctl.cli.command import Command, Noun, Session, pass_session


@click.group("manager", cls=Noun)
def manager() -> None:
    """Run the manager of a pool."""


@manager.command("run", cls=Command, talks=False)
@click.option("--domain", required=True, help="XMPP domain of the pool: that of the component.")
@click.option(
    "--secret-file",
    type=Path,
    required=True,
    metavar="FILE",
    help="What the component shares with the server.",
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
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
@pass_session
def run(session: Session, /, data_dir: Path | None, **options: Any) -> None:
    """Run the manager in the foreground, until SIGTERM."""
    from kestrelctl.local.state import pools_directory
    from kestrelctl.manager import daemon
    from kestrelctl.manager.options import ManagerOptions

    data_dir = data_dir or pools_directory().parent / "manager"
    daemon.run(ManagerOptions(data_dir=data_dir, verbose=session.screen.verbose, **options))
