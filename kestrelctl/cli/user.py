"""`kestrelctl user …`: who uses the pool, and how much."""

from __future__ import annotations

import click

from kestrelctl.cli.command import Noun
from kestrelctl.cli.user_usage import usage


@click.group("user", cls=Noun)
def user() -> None:
    """See what users have used."""


user.add_command(usage)
