"""Options that say which server takes the mail of a pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kestrelctl.core.model.names import problem_with_mail
from kestrelctl.errors import UsageError
from kestrelctl.grammar.click_types import FilePath

if TYPE_CHECKING:
    from kestrelctl.manager.mail.server import MailServer

F = TypeVar("F", bound=Callable[..., object])


def mail_options(command: F) -> F:
    """Adds `--smtp` and the options that belong to it to a command."""
    for option in (
        click.option("--mail-from", default="", metavar="ADDRESS", help="Sender of the mail."),
        click.option(
            "--smtp-password-file",
            type=FilePath(),
            metavar="FILE",
            help="File with that user's password.",
        ),
        click.option(
            "--smtp-user",
            default="",
            metavar="NAME",
            help="User name at the mail server.  [default: no login]",
        ),
        click.option(
            "--smtp-tls",
            type=click.Choice(["none", "starttls", "tls"]),
            help="Encryption to the mail server.  [default: starttls; on loopback none]",
        ),
        click.option(
            "--smtp",
            metavar="HOST[:PORT]",
            help="Mail server that tells users when their jobs end.  [default: no mail]",
        ),
    ):
        command = option(command)
    return command


def mail_words(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the values of these options as words for `manager run`.

    Raises:
        UsageError: see `mail_server`.
    """
    if mail_server(dict(options)) is None:
        return ()
    return tuple(
        word
        for name, value in options.items()
        if value
        for word in (
            f"--{name.replace('_', '-')}",
            str(value.absolute() if isinstance(value, Path) else value),
        )
    )


def mail_server(options: dict[str, Any]) -> MailServer | None:
    """Takes the values of these options out of those of a command; None if there is no server.

    Raises:
        UsageError: they do not go together, or the password would travel in the clear.
    """
    from kestrelctl.core.model.names import is_loopback
    from kestrelctl.manager.mail.server import MailServer, SmtpTls, parse_server

    smtp, tls, user = (options.pop(name) for name in ("smtp", "smtp_tls", "smtp_user"))
    password_file, sender = options.pop("smtp_password_file"), options.pop("mail_from")
    if smtp is None:
        if tls or user or password_file or sender:
            raise UsageError("there is no server for mail", hint="--smtp HOST[:PORT]")
        return None
    host, port = parse_server(smtp)
    if not sender:
        raise UsageError("mail comes from somebody", hint="--mail-from ADDRESS")
    if problem := problem_with_mail(sender):
        raise UsageError(problem)
    if bool(user) != (password_file is not None):
        raise UsageError("--smtp-user and --smtp-password-file belong together")
    loopback = is_loopback(host)
    found = SmtpTls(tls) if tls else (SmtpTls.NONE if loopback else SmtpTls.STARTTLS)
    if user and found is SmtpTls.NONE and not loopback:
        raise UsageError(
            f"the password would go to {host} in the clear",
            cause="--smtp-tls is none, and the server is not on this machine",
            hint="--smtp-tls starttls, or tls",
        )
    return MailServer(
        host=host, port=port, tls=found, user=user, password_file=password_file, sender=sender
    )
