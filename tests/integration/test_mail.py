"""A real pool mails its users through a real SMTP server, whatever happens to the two."""

from __future__ import annotations

import asyncio
import contextlib
import email
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from email import policy
from pathlib import Path

import pytest
from daemons import KESTRELCTL, until
from smtp_server import SmtpServer

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import EventPage
from kestrelctl.protocol.requests import ListEvents
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

TO_ADA = "ada@example.org"
#: A manager that gathers for a moment only, and tries again soon.
IN_A_HURRY = """
import os, signal
from kestrelctl.cli.main import main
from kestrelctl.manager.mail import mails

mails.GATHER_SECONDS = mails.BETWEEN_SECONDS = 0.2
mails.FIRST_PAUSE_SECONDS = mails.LONGEST_PAUSE_SECONDS = 0.2

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

{dies}
main()
"""
LIVES = ""
#: Gathers events for a moment only, and tries again soon.
TELLS_SOON = """
from kestrelctl.manager.handlers import service
service.GATHER_SECONDS = service.BETWEEN_SECONDS = service.AGAIN_SECONDS = 0.2
service.LONGEST_AGAIN_SECONDS = 0.2
service.MOST_TRIES = 10_000
"""
#: Dies when the job has durably ended and the owner is to be mailed.
DIES_BEFORE_IT_SENDS = "mails.Mails._serve = die"
#: Dies when the server has the mail, before it can note that.
DIES_BEFORE_IT_NOTES = "mails.Mails._settle = die"


class Site:
    """A server with a manager, a worker and a user who is mailed."""

    def __init__(self, server: PrivateServer, directory: Path, smtp_port: int) -> None:
        self.server = server
        self._directory = directory
        self._smtp_port = smtp_port
        self._ada = f"ada@{server.users_domain}"
        self._password = server.add_account(self._ada)
        self._started: list[subprocess.Popen[bytes]] = []
        (directory / "secret").write_text(server.secret)
        (directory / "smtp").write_text("opens\n")

    def start_manager(self, dies: str = LIVES, *more: object) -> subprocess.Popen[bytes]:
        program = [sys.executable, "-c", IN_A_HURRY.replace("{dies}", dies)]
        return self._start(
            *program, "manager", "run", "--domain", self.server.domain, "--secret-file",
            self._directory / "secret", "--port", self.server.component_port, "--data-dir",
            self._directory / "manager", "--smtp", f"{LOOPBACK}:{self._smtp_port}",
            "--smtp-user", "pool", "--smtp-password-file", self._directory / "smtp",
            "--mail-from", "kestrel@pool.example", *more,
        )  # fmt: skip

    def start_worker(self) -> subprocess.Popen[bytes]:
        jid = f"w1@workers.{self.server.domain}"
        credentials = self._directory / "credentials"
        credentials.write_text(f"{jid} {self.server.add_account(jid)}\n")
        credentials.chmod(0o600)
        return self._start(
            *KESTRELCTL, "worker", "run", "--pool", self.server.domain, "--port",
            self.server.client_port, "--no-tls", "--credentials", credentials,
            "--data-dir", self._directory / "worker", "--cpus", "1",
        )  # fmt: skip

    def _start(self, *words: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*map(str, words)], stderr=subprocess.DEVNULL)
        self._started.append(process)
        return process

    def stop(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()

    @asynccontextmanager
    async def user(self) -> AsyncIterator[UserConnection]:
        """Ada, as soon as the manager answers."""
        async with connect_user(
            self._ada, self._password, self.server.domain, LOOPBACK, self.server.client_port,
            tls=False,
        ) as connection:  # fmt: skip
            async with asyncio.timeout(20):
                while True:
                    with contextlib.suppress(Exception):
                        await connection.ask(rq.PoolStatus(), 2.0)
                        break
                    await asyncio.sleep(0.1)
            yield connection


@pytest.fixture
async def smtp() -> AsyncIterator[SmtpServer]:
    async with SmtpServer() as server:
        yield server


@pytest.fixture
def site(private_server: PrivateServer, smtp: SmtpServer, tmp_path: Path) -> Iterator[Site]:
    found = Site(private_server, tmp_path, smtp.port)
    yield found
    found.stop()


async def fails(user: UserConnection) -> int:
    """A job of three tasks, of which one fails, and whose end somebody waits for."""
    program = Program(argv=("/bin/sh", "-c", 'test "$KESTREL_ITEM" != one'))
    items = ("none", "one", "two")
    spec = JobSpec(program=program, count=3, items=items, name="fit", max_failures=1)
    answer = await user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(answer, an.Submitted)
    return answer.job_id


async def until_kinds(user: UserConnection, *kinds: str) -> None:
    """Waits until this became of workers, and nothing else."""
    async with asyncio.timeout(30):
        while True:
            page = await user.ask(ListEvents())
            assert isinstance(page, EventPage)
            if [event.kind for event in page.events] == list(kinds):
                return
            await asyncio.sleep(0.1)


def texts(smtp: SmtpServer) -> list[str]:
    found = [email.message_from_bytes(data, policy=policy.default) for _, data in smtp.mails]
    return [message.get_content() for message in found]


async def test_a_user_is_mailed_when_his_job_has_failed(site: Site, smtp: SmtpServer) -> None:
    site.start_manager()
    site.start_worker()
    async with site.user() as user:
        await user.ask(rq.ChangeUser(user="", mail=TO_ADA))
        job = await fails(user)
        await until(lambda: smtp.mails, 30.0)
    [(receivers, _)] = smtp.mails
    assert (receivers, set(smtp.logins)) == ([TO_ADA], {("pool", "opens")})
    [text] = texts(smtp)
    assert text.startswith(f'job {job} "fit" failed: 2 done, 1 failed in ')
    assert text.splitlines()[1:3] == ["  task 1 failed: exit code 1", "  its item: one"]
    assert f"kestrelctl --pool {site.server.domain} job logs {job} 1" in text


async def test_a_server_for_mail_that_is_away_gets_it_when_it_is_there(
    site: Site, smtp: SmtpServer
) -> None:
    smtp.answers[""] = "421 not now"
    site.start_manager()
    site.start_worker()
    async with site.user() as user:
        await user.ask(rq.ChangeUser(user="", mail=TO_ADA))
        await fails(user)
        await until(lambda: smtp.refusals >= 3, 30.0)
        assert smtp.mails == []
        smtp.answers.clear()
        await until(lambda: smtp.mails, 30.0)
    assert len(smtp.mails) == 1


@pytest.mark.parametrize(
    ("dies", "most"), [(DIES_BEFORE_IT_SENDS, 1), (DIES_BEFORE_IT_NOTES, 2)], ids=["sends", "notes"]
)
async def test_who_is_to_be_mailed_is_mailed_by_the_next_manager(
    site: Site, smtp: SmtpServer, dies: str, most: int
) -> None:
    dying = site.start_manager(dies)
    site.start_worker()
    async with site.user() as user:
        await user.ask(rq.ChangeUser(user="", mail=TO_ADA))
        job = await fails(user)
        await until(lambda: dying.poll() is not None, 30.0)
    assert len(smtp.mails) == most - 1
    site.start_manager()
    await until(lambda: len(smtp.mails) == most, 30.0)
    async with site.user() as user:
        later = await fails(user)
        await until(lambda: len(smtp.mails) == most + 1, 30.0)
    *first, second = texts(smtp)
    assert all(text.startswith(f'job {job} "fit" failed') for text in first)
    assert second.startswith(f'job {later} "fit" failed')


async def test_the_admin_is_mailed_when_a_worker_goes_down(
    site: Site, smtp: SmtpServer, tmp_path: Path
) -> None:
    noted = tmp_path / "noted"
    note = tmp_path / "note"
    note.write_text(f'#!/bin/sh\necho "$KESTREL_EVENT" >> {noted}\n')
    note.chmod(0o755)
    handlers = tmp_path / "handlers.ini"
    handlers.write_text(
        f"[admin]\non = failed\nmail = admin@example.org\n\n[note]\non = *\nrun = {note}\n"
    )
    site.start_manager(LIVES, "--handlers", handlers)
    worker = site.start_worker()
    await until(noted.exists, 30.0)
    worker.kill()
    await until(lambda: smtp.mails, 60.0)
    [(receivers, data)] = smtp.mails
    message = email.message_from_bytes(data, policy=policy.default)
    assert receivers == ["admin@example.org"]
    assert message["Subject"] == f"{site.server.domain}: failed w1"
    assert f" failed w1@workers.{site.server.domain}/" in message.get_content()
    await until(lambda: noted.read_text().split() == ["join", "failed"])


async def test_what_happened_is_told_though_the_manager_was_killed_meanwhile(
    site: Site, smtp: SmtpServer, tmp_path: Path
) -> None:
    handlers = tmp_path / "handlers.ini"
    handlers.write_text("[admin]\non = failed\nmail = admin@example.org\n")
    smtp.answers[""] = "421 not now"
    manager = site.start_manager(TELLS_SOON, "--handlers", handlers)
    worker = site.start_worker()
    async with site.user() as user:
        await until_kinds(user, "join")
        worker.kill()
        await until_kinds(user, "join", "failed")
    await until(lambda: smtp.refusals >= 2, 60.0)
    manager.kill()
    manager.wait()
    smtp.answers.clear()
    again = site.start_manager(TELLS_SOON, "--handlers", handlers)
    await until(lambda: smtp.mails, 60.0)
    [(_, data)] = smtp.mails
    assert email.message_from_bytes(data)["Subject"] == f"{site.server.domain}: failed w1"
    async with site.user():
        again.kill()
    again.wait()
    site.start_manager(TELLS_SOON, "--handlers", handlers)
    async with site.user() as user:
        second = site.start_worker()
        await until_kinds(user, "join", "failed", "join")
        second.kill()
        await until(lambda: len(smtp.mails) > 1, 60.0)
    assert len(smtp.mails) == 2, "the first is not told again"
