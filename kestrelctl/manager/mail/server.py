"""Hands mail to an SMTP server, in a thread: the loop never waits for it."""

from __future__ import annotations

import contextlib
import enum
import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Protocol

from kestrelctl.errors import UsageError
from kestrelctl.manager.mail.own_thread import in_a_thread

#: The time that the server may be silent.
SILENT_SECONDS = 20.0
#: The first code with which a server does not want to be asked again (RFC 5321, 4.2.1).
_FOR_GOOD = 500
_MOST_OF_AN_ANSWER = 200


class SmtpTls(enum.StrEnum):
    """The ways to keep a connection to a server for mail private."""

    NONE = "none"
    STARTTLS = "starttls"
    TLS = "tls"


#: Ports that are usual: RFC 5321 and RFC 8314.
_RELAY_PORT, _SUBMISSION_PORT, _TLS_PORT = 25, 587, 465


class NotNow(Exception):
    """The server is away, or takes no mail from this manager now; the next try may succeed."""


class NotToHim(Exception):
    """The server does not take the mail for its receiver.

    Attributes:
        for_good: whether asking again is of no use.
    """

    def __init__(self, why: str, *, for_good: bool) -> None:
        super().__init__(why)
        self.for_good = for_good


class Post(Protocol):
    """The port to which mail is handed; `MailServer`, or a test's own."""

    @property
    def sender(self) -> str:
        """The address that mail comes from."""
        ...

    async def send(self, message: EmailMessage) -> None:
        """Hands a mail over.

        Raises:
            NotNow, NotToHim: the server has not taken it.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class MailServer:
    """A server for mail, and how it is spoken to.

    Attributes:
        sender: the address that mail comes from.
        port: None for the usual one.
        user: the user as whom to log in; empty for not at all.
        password_file: holds that user's password; it is read for each mail.
    """

    host: str
    sender: str
    tls: SmtpTls
    port: int | None = None
    user: str = ""
    password_file: Path | None = None

    async def send(self, message: EmailMessage) -> None:
        """Hands a mail over, as `Post.send`."""
        await in_a_thread("mail", lambda: self._send(message))

    def _send(self, message: EmailMessage) -> None:
        try:
            with contextlib.ExitStack() as stack:
                server = self._connected(stack)
                server.send_message(message)
        except smtplib.SMTPRecipientsRefused as error:
            [(code, answer)] = error.recipients.values()
            raise NotToHim(_said(code, answer), for_good=code >= _FOR_GOOD) from error
        except smtplib.SMTPDataError as error:
            said = _said(error.smtp_code, error.smtp_error)
            raise NotToHim(said, for_good=error.smtp_code >= _FOR_GOOD) from error
        except smtplib.SMTPResponseException as error:
            raise NotNow(_said(error.smtp_code, error.smtp_error)) from error
        except (smtplib.SMTPException, OSError) as error:
            raise NotNow(str(error) or type(error).__name__) from error

    def _connected(self, stack: contextlib.ExitStack) -> smtplib.SMTP:
        port = self.port or self._usual_port()
        server: smtplib.SMTP
        if self.tls is SmtpTls.TLS:
            trust = ssl.create_default_context()
            server = smtplib.SMTP_SSL(self.host, port, timeout=SILENT_SECONDS, context=trust)
        else:
            server = smtplib.SMTP(self.host, port, timeout=SILENT_SECONDS)
        stack.callback(_leave, server)
        if self.tls is SmtpTls.STARTTLS:
            server.starttls(context=ssl.create_default_context())
        if self.user:
            assert self.password_file is not None
            server.login(self.user, self.password_file.read_text().strip())
        return server

    def _usual_port(self) -> int:
        if self.tls is SmtpTls.TLS:
            return _TLS_PORT
        return _SUBMISSION_PORT if self.user else _RELAY_PORT


def _leave(server: smtplib.SMTP) -> None:
    """Says goodbye. The server has the mail, or has not, whatever it answers to that."""
    with contextlib.suppress(smtplib.SMTPException, OSError):
        server.quit()
    server.close()


def _said(code: int, answer: bytes | str) -> str:
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else answer
    return f"{code} {' '.join(text.split())}"[:_MOST_OF_AN_ANSWER]


def parse_server(text: str) -> tuple[str, int | None]:
    """Reads host and port of `HOST[:PORT]`; a host with colons stands in brackets.

    Raises:
        UsageError: it is neither.
    """
    host, colon, port = text.strip(), "", ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        if not bracket or (rest and colon != ":"):
            host = ""
    else:
        host, colon, port = host.partition(":")
    in_range = port.isdecimal() and len(port) <= 5 and 0 < int(port) <= 65535
    if not host or (colon and not in_range):
        raise UsageError(f"{text[:80]!r} is no server", hint="write HOST or HOST:PORT")
    return host, int(port) if colon else None
