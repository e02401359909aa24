"""Mail is handed to an SMTP server, and what that answers is understood."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from listening import LOOPBACK
from smtp_server import SmtpServer

from kestrelctl.manager.mail import server as mail_server
from kestrelctl.manager.mail.server import MailServer, NotNow, NotToHim, SmtpTls


@pytest.fixture
async def smtp() -> AsyncIterator[SmtpServer]:
    async with SmtpServer() as server:
        yield server


def mail(to: str = "ada@example.org") -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = "kestrel@pool.org", to, "job 7: done"
    message.set_content("job 7 done: 3 done\n")
    return message


def at(smtp: SmtpServer, **how: object) -> MailServer:
    fields: dict[str, object] = {"tls": SmtpTls.NONE, "sender": "kestrel@pool.org"}
    return MailServer(host=LOOPBACK, port=smtp.port, **(fields | how))  # type: ignore[arg-type]


async def test_a_mail_goes_to_its_receiver(smtp: SmtpServer) -> None:
    await at(smtp).send(mail())
    [(receivers, text)] = smtp.mails
    assert receivers == ["ada@example.org"]
    assert b"Subject: job 7: done\r\n" in text
    assert smtp.logins == []


async def test_who_has_a_password_logs_in(smtp: SmtpServer, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    await at(smtp, user="pool", password_file=tmp_path / "password").send(mail())
    assert (smtp.logins, len(smtp.mails)) == ([("pool", "secret")], 1)


@pytest.mark.parametrize("command", ["RCPT", "."])
@pytest.mark.parametrize(("answer", "for_good"), [("550 nobody", True), ("451 later", False)])
async def test_what_is_not_for_its_receiver_is_told_from_what_must_wait(
    smtp: SmtpServer, command: str, answer: str, for_good: bool
) -> None:
    smtp.answers[command] = answer
    with pytest.raises(NotToHim, match=answer) as raised:
        await at(smtp).send(mail())
    assert raised.value.for_good is for_good
    assert smtp.mails == []


@pytest.mark.parametrize(
    ("command", "answer"), [("", "554 not here"), ("MAIL", "550 who?"), ("AUTH", "535 no")]
)
async def test_a_server_that_takes_nothing_from_the_manager_may_do_so_later(
    smtp: SmtpServer, tmp_path: Path, command: str, answer: str
) -> None:
    (tmp_path / "password").write_text("secret")
    smtp.answers[command] = answer
    with pytest.raises(NotNow, match=answer):
        await at(smtp, user="pool", password_file=tmp_path / "password").send(mail())


async def test_without_encryption_a_password_file_or_a_server_nothing_is_sent(
    smtp: SmtpServer, tmp_path: Path
) -> None:
    with pytest.raises(NotNow, match="STARTTLS"):
        await at(smtp, tls=SmtpTls.STARTTLS).send(mail())
    with pytest.raises(NotNow):
        await at(smtp, tls=SmtpTls.TLS).send(mail())
    with pytest.raises(NotNow, match="No such file"):
        await at(smtp, user="pool", password_file=tmp_path / "none").send(mail())
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        away = MailServer(
            host=LOOPBACK, port=free.getsockname()[1], tls=SmtpTls.NONE, sender="k@pool.org"
        )
        with pytest.raises(NotNow, match="refused"):
            await away.send(mail())
    assert (smtp.mails, smtp.logins) == ([], [])


async def test_the_loop_goes_on_while_a_server_says_nothing(
    smtp: SmtpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_server, "SILENT_SECONDS", 0.2)
    smtp.silent = True
    sending = asyncio.ensure_future(at(smtp).send(mail()))
    turns = 0
    while not sending.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 10
    with pytest.raises(NotNow, match="timed out"):
        await sending


async def test_a_mail_that_was_taken_is_sent_whatever_comes_of_the_goodbye(
    smtp: SmtpServer,
) -> None:
    smtp.answers["QUIT"] = "500 what?"
    await at(smtp).send(mail())
    assert len(smtp.mails) == 1
