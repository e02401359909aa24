"""`kestrelctl user mail`: sets the address that is told when a user's jobs end."""

from __future__ import annotations

import click

from kestrelctl.cli.command import CliCommand, Invocation, pass_invocation
from kestrelctl.core.model.names import problem_with_mail
from kestrelctl.errors import UsageError
from kestrelctl.protocol.requests import ChangeUser


def parse_mail(text: str) -> str:
    """Reads an address; empty for `none`.

    Raises:
        UsageError: it is neither.
    """
    if text == "none":
        return ""
    if problem := problem_with_mail(text):
        raise UsageError(problem, hint="write NAME@DOMAIN, or `none` for no mail")
    return text


@click.command("mail", cls=CliCommand)
@click.argument("address", type=parse_mail)
@pass_invocation
def mail(invocation: Invocation, address: str) -> None:
    """Have the pool mail you at ADDRESS when your jobs end; `none` ends that.

    It writes of jobs that failed, and of those that took longer than a minute.
    """
    invocation.change(
        ChangeUser(user="", mail=address),
        lambda done: (
            f"mail for {done.what[0]} goes to {address}" if address else "no mail any more"
        ),
        as_admin=False,
    )
