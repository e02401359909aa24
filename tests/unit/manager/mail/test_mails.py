"""Owners are mailed of ends of their jobs: once, at their address, whatever the server does."""

from __future__ import annotations

import asyncio
from email.message import EmailMessage
from pathlib import Path

import pytest
from managerkit import FarStore, PlayedManager, settled
from storekit import QuickStore

from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import Unreachable
from kestrelctl.manager.mail import mails
from kestrelctl.manager.mail.mails import (
    BETWEEN_SECONDS,
    FIRST_PAUSE_SECONDS,
    GATHER_SECONDS,
    GIVE_UP_SECONDS,
    Mails,
)
from kestrelctl.manager.mail.server import NotNow, NotToHim
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq

ADA, BOB, ROOT = "ada@users.pool/1", "bob@users.pool/1", "root@users.pool/1"
TO_ADA, TO_BOB = "ada@example.org", "bob@example.com"


class PlayedPost:
    """A server for mail that takes what it is given, until it is told otherwise.

    Attributes:
        trouble: what comes of the next tries instead, in order.
        tries: how often it was asked.
    """

    sender = "kestrel@pool.example"

    def __init__(self) -> None:
        self.sent: list[EmailMessage] = []
        self.trouble: list[Exception] = []
        self.tries = 0

    async def send(self, message: EmailMessage) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if self.trouble:
            raise self.trouble.pop(0)
        self.sent.append(message)

    def receivers(self) -> list[str]:
        return [str(message["To"]) for message in self.sent]


class Played(PlayedManager):
    """A manager that sends mail; Ada and Bob have addresses."""

    def __init__(self, directory: Path, store: QuickStore | FarStore) -> None:
        super().__init__(directory, store=store)
        self.post = PlayedPost()
        self.mails = Mails(self.service, self.post)

    async def said(self, who: str, request: rq.Request) -> an.AnyAnswer:
        return directions.answers.decode(await self.ask(who, request))

    async def addresses(self) -> None:
        await self.said(ADA, rq.ChangeUser(user="", mail=TO_ADA))
        await self.said(BOB, rq.ChangeUser(user="", mail=TO_BOB))

    async def ends(self, who: str = ADA, *, name: str = "") -> int:
        """A job fails: its deadline passes though no worker came."""
        spec = JobSpec(program=Program(argv=("true",)), deadline_seconds=1.0, name=name)
        answer = await self.said(who, rq.SubmitJob(spec=spec))
        assert isinstance(answer, an.Submitted), answer
        await self.passes(2.0)
        return answer.job_id

    async def passes(self, seconds: float) -> None:
        """Time goes by, and the core is told."""
        self.now += seconds
        self.service.handle(ev.Tick(at=self.now, cause="tick"))
        await self.settled()

    async def look(self, after_seconds: float = 0.0) -> float | None:
        await self.passes(after_seconds)
        return await self.mails.look()

    def left(self) -> list[int]:
        """The jobs of which mail is still to be sent."""
        owners = self.store.unmailed_owners()
        return [each.job_id for owner in owners for each in self.store.unmailed(owner, 1000)]


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> Played:
    manager = Played(tmp_path, quick_store)
    await manager.addresses()
    return manager


async def test_the_owner_is_mailed_once_at_his_address(manager: Played) -> None:
    job = await manager.ends(BOB)
    assert await manager.look(GATHER_SECONDS) is None
    [mail] = manager.post.sent
    assert (mail["To"], mail["From"]) == (TO_BOB, "kestrel@pool.example")
    assert mail["Subject"] == f"pool: job {job}: cancelled"
    assert f"job {job} cancelled: 0 done" in mail.get_content()
    await manager.look(GIVE_UP_SECONDS)
    assert (len(manager.post.sent), manager.left()) == (1, [])


async def test_a_mail_names_the_pool_as_its_users_do(manager: Played) -> None:
    manager.service.name = "lab"
    job = await manager.ends()
    await manager.look(GATHER_SECONDS)
    [mail] = manager.post.sent
    assert mail["Subject"] == f"lab: job {job}: cancelled"
    assert f"kestrelctl --pool lab job info {job}" in mail.get_content()


async def test_many_that_end_together_are_one_mail_and_the_next_comes_a_minute_later(
    manager: Played,
) -> None:
    first = [await manager.ends() for _ in range(3)]
    await manager.look(GATHER_SECONDS)
    [mail] = manager.post.sent
    assert mail["Subject"] == "pool: 3 jobs ended: 3 cancelled"
    assert all(f"job {job} cancelled" in mail.get_content() for job in first)
    fourth = await manager.ends()
    assert await manager.look(GATHER_SECONDS) is not None
    assert len(manager.post.sent) == 1
    await manager.look(BETWEEN_SECONDS)
    assert f"job {fourth} cancelled" in manager.post.sent[1].get_content()


async def test_more_than_one_mail_holds_come_a_minute_apart(
    manager: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mails, "MOST_JOBS", 2)
    jobs = [await manager.ends() for _ in range(5)]
    for sent in (1, 2, 3):
        await manager.look(BETWEEN_SECONDS)
        await manager.look()
        assert len(manager.post.sent) == sent
    text = "".join(mail.get_content() for mail in manager.post.sent)
    assert all(text.count(f"job {job} cancelled") == 1 for job in jobs)


async def test_two_users_have_a_mail_each_with_their_own_jobs(manager: Played) -> None:
    ours, theirs = await manager.ends(ADA), await manager.ends(BOB)
    await manager.look(GATHER_SECONDS)
    found = {str(mail["To"]): mail.get_content() for mail in manager.post.sent}
    named = {to: [job for job in (ours, theirs) if f"job {job} " in found[to]] for to in found}
    assert named == {TO_ADA: [ours], TO_BOB: [theirs]}


async def test_what_a_manager_did_not_send_the_next_one_does(
    manager: Played, tmp_path: Path
) -> None:
    job = await manager.ends()
    after = Played(tmp_path, manager.store)
    after.now = manager.now
    await after.look(GATHER_SECONDS)
    assert after.post.receivers() == [TO_ADA]
    assert f"job {job} " in after.post.sent[0].get_content()
    assert manager.left() == []


async def test_a_server_that_is_away_is_tried_again_ever_more_seldom(manager: Played) -> None:
    await manager.ends(ADA)
    await manager.ends(BOB)
    manager.post.trouble = [NotNow("refused")] * 4
    pause = await manager.look(GATHER_SECONDS)
    assert (manager.post.tries, pause) == (1, mails.FIRST_PAUSE_SECONDS)
    pauses = []
    while manager.post.trouble:
        assert pause is not None
        pause = await manager.look(pause)
        pauses.append(pause)
    assert pauses[:2] == [2 * mails.FIRST_PAUSE_SECONDS, 4 * mails.FIRST_PAUSE_SECONDS]
    assert pause is not None
    await manager.look(pause)
    assert sorted(manager.post.receivers()) == [TO_ADA, TO_BOB]
    assert (manager.service.mails.sent, manager.service.mails.delayed) == (2, 4)


async def test_a_user_whose_mail_must_wait_keeps_no_other_from_his(manager: Played) -> None:
    await manager.ends(ADA)
    await manager.ends(BOB)
    manager.post.trouble = [NotToHim("450 later", for_good=False)]
    await manager.look(GATHER_SECONDS)
    assert manager.post.receivers() == [TO_BOB]
    await manager.look(mails.FIRST_PAUSE_SECONDS)
    assert manager.post.receivers() == [TO_BOB, TO_ADA]


async def test_what_the_server_refuses_for_good_is_not_tried_again(
    manager: Played, caplog: pytest.LogCaptureFixture
) -> None:
    job = await manager.ends()
    manager.post.trouble = [NotToHim("550 no such user", for_good=True)]
    await manager.look(GATHER_SECONDS)
    assert f"the end of 1 job ({job}) of ada@users.pool not mailed: 550 no such user" in caplog.text
    assert await manager.look(GIVE_UP_SECONDS) is None
    assert (manager.post.tries, manager.left()) == (1, [])


async def test_after_a_day_it_is_given_up(
    manager: Played, caplog: pytest.LogCaptureFixture
) -> None:
    await manager.ends()
    manager.post.trouble = [NotNow("away")] * 2
    await manager.look(GATHER_SECONDS)
    assert manager.left() == [1]
    await manager.look(GIVE_UP_SECONDS)
    assert "tried for a day" in caplog.text
    assert await manager.look(GIVE_UP_SECONDS) is None
    assert (manager.post.tries, manager.left(), manager.service.mails.given_up) == (2, [], 1)


async def test_what_the_server_has_is_not_sent_again_while_that_is_not_stored(
    manager: Played,
) -> None:
    await manager.ends()
    manager.now += GATHER_SECONDS
    manager.store.full = True
    sending = asyncio.ensure_future(manager.mails.look())
    await settled()
    assert (len(manager.post.sent), sending.done()) == (1, False)
    await manager.passes(GIVE_UP_SECONDS)
    assert (len(manager.post.sent), sending.done()) == (1, False)
    sending.cancel()


async def test_who_cancels_a_job_knows(manager: Played) -> None:
    await manager.said(ADA, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    await manager.passes(3600.0)
    await manager.said(ADA, rq.CancelJobs(jobs="last"))
    assert manager.left() == []


async def test_who_has_no_address_any_more_gets_no_mail(manager: Played) -> None:
    await manager.ends()
    await manager.said(ADA, rq.ChangeUser(user="", mail=""))
    assert await manager.look(GATHER_SECONDS) is None
    assert (manager.post.sent, manager.left()) == ([], [])
    await manager.ends()
    assert manager.left() == []


async def test_without_a_server_nothing_is_kept_for_mail(manager: Played, tmp_path: Path) -> None:
    await manager.ends()
    without = Mails(manager.service, None)
    manager.now += GATHER_SECONDS
    assert await without.look() is None
    assert manager.left() == []


async def test_a_slip_at_one_mail_ends_no_other(manager: Played) -> None:
    await manager.ends(ADA)
    await manager.ends(BOB)
    manager.post.trouble = [ValueError("of which nobody thought")]
    await manager.look(GATHER_SECONDS)
    assert manager.post.receivers() == [TO_BOB]
    assert manager.left() == [1]


class TestAddresses:
    async def test_a_user_sets_his_own_and_no_other(self, manager: Played) -> None:
        own = rq.ChangeUser(user="ada@users.pool", mail="ada@example.net")
        assert isinstance(await manager.said(ADA, own), an.Changed)
        for request in (
            rq.ChangeUser(user="bob@users.pool", mail="ada@example.net"),
            rq.ChangeUser(user="nobody", mail="ada@example.net"),
            rq.ChangeUser(user="", mail="ada@example.net", reset_usage=True),
            rq.ChangeUser(user="", mail="ada@example.net", group=""),
        ):
            answer = await manager.said(ADA, request)
            assert isinstance(answer, an.Failed), request
            assert answer.code == "not-allowed"
        record = manager.service.pool.sharers.of("bob@users.pool").record
        assert record.mail == TO_BOB

    async def test_an_admin_sets_anybodys(self, manager: Played) -> None:
        await manager.said(ROOT, rq.ChangeUser(user="carl@users.pool", mail="c@example.org"))
        assert manager.service.pool.sharers.of("carl@users.pool").record.mail == "c@example.org"

    @pytest.mark.parametrize(
        "address",
        ["ada", "ada@", "ada@example.org\nBcc: eve@example.org", "ada@example.org\n", "a b@c.org",
         "Ada <ada@example.org>", "ada@example.org,eve@example.org", "ädä@example.org",
         f"ada@{'a.' * 130}org", "ada@-example.org", "\"a\"@example.org"],
    )  # fmt: skip
    async def test_what_is_no_plain_address_is_refused(self, manager: Played, address: str) -> None:
        answer = await manager.said(ADA, rq.ChangeUser(user="", mail=address))
        assert isinstance(answer, an.Failed)
        assert (answer.code, "no plain address" in answer.message) == ("usage", True)
        assert manager.service.pool.sharers.of("ada@users.pool").record.mail == TO_ADA

    async def test_it_is_shown_to_him_and_to_admins_alone(self, manager: Played) -> None:
        manager.access.share_jobs = True

        async def seen(who: str) -> list[str]:
            answer = await manager.said(who, rq.ListUsers())
            assert isinstance(answer, an.Users)
            return [user.mail for user in answer.users]

        assert await seen(ROOT) == [TO_ADA, TO_BOB]
        assert await seen(ADA) == [TO_ADA, ""]

    async def test_a_pool_without_a_server_says_so(self, tmp_path: Path) -> None:
        manager = PlayedManager(tmp_path)
        for who in (ADA, ROOT):
            answer = directions.answers.decode(
                await manager.ask(who, rq.ChangeUser(user="", mail="a@b.org"))
            )
            assert isinstance(answer, an.Failed)
            assert answer.message == "this pool sends no mail"
        found = directions.answers.decode(await manager.ask(ADA, rq.ChangeUser(user="", mail="")))
        assert isinstance(found, an.Changed)


async def test_mail_goes_out_soon_after_the_store_is_back(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    store = FarStore(quick_store)
    manager = Played(tmp_path, store)
    await manager.addresses()
    await manager.ends(ADA)
    store.trouble = Unreachable("PostgreSQL is away")
    assert await manager.look(GATHER_SECONDS) == FIRST_PAUSE_SECONDS
    store.trouble = None
    await manager.look(FIRST_PAUSE_SECONDS)
    assert manager.post.receivers() == [TO_ADA]
