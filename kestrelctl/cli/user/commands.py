"""`kestrelctl user …`: who uses the pool, how much, and with what share of it."""

from __future__ import annotations

import click

from kestrelctl.cli.command import Noun
from kestrelctl.cli.user.mail import mail
from kestrelctl.cli.user.share import info, list_, set_
from kestrelctl.cli.user.usage import usage


@click.group("user", cls=Noun)
def user() -> None:
    """List users and what they have used; set shares and mail."""


for command in (list_, info, set_, mail, usage):
    user.add_command(command)
