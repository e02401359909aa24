"""Enroll, join and revoke, with a pool driven by hand and accounts in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from poolkit import PoolDriver

from kestrelctl import clock as clocks
from kestrelctl.core.members.enrollment import Invitation
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, UsageError
from kestrelctl.manager.access import Access
from kestrelctl.manager.accounts import TemporaryAccounts
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.members import enrollment as shell
from kestrelctl.manager.members.enrollment import EnrollmentRequests
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.workers import VERSION, Join, NewAccount, Refused
from kestrelctl.store.kept_text import TextFile

HOME = "workers.example.org"
NOW = 1_795_190_000.0


class AccountsInMemory:
    """The twin of `xmpp.accounts.Accounts`; everything that is done is written down."""

    def __init__(self) -> None:
        self.passwords: dict[str, str] = {}
        self.story: list[str] = []
        self.asked: set[str] = set()
        self.kept = ""
        self.trouble: KestrelError | None = None

    async def create(self, jid: str, password: str) -> bool:
        await self._travel()
        if jid in self.passwords:
            return False
        self.passwords[jid] = password
        self.story.append(f"made {jid.partition('@')[0]}")
        return True

    async def delete(self, jid: str) -> None:
        await self._travel()
        if jid == self.kept:
            raise KestrelError(f"the server did not delete the account {jid}")
        if self.passwords.pop(jid, None) is not None:
            self.story.append(f"deleted {jid.partition('@')[0]}")

    async def exists(self, jid: str) -> bool:
        self.asked.add(jid)
        await self._travel()
        return jid in self.passwords

    async def end_sessions(self, jid: str) -> None:
        await self._travel()
        self.story.append(f"ended {jid.partition('@')[0]}")

    async def _travel(self) -> None:
        await asyncio.sleep(0)
        if self.trouble is not None:
            raise self.trouble


class House:
    """A manager's enrollment, and whoever talks to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.driver = PoolDriver()
        self.accounts = AccountsInMemory()
        self.replies: list[Any] = []
        self.start()

    def start(self) -> None:
        """The manager starts, perhaps again."""
        driver = self.driver
        service: Any = SimpleNamespace(pool=driver.pool, handle=driver.tell, now=lambda: driver.now)
        accounts: Any = self.accounts
        options = ManagerOptions(
            domain="example.org", secret_file=Path("x"), data_dir=self.directory
        )
        temporary = TemporaryAccounts(TextFile(self.directory / "invited"))
        self.enrollment = EnrollmentRequests(service, accounts, Access(options), temporary)

    def caller(self) -> Caller:
        return Caller("ada@users.example.org/x", True, self.replies.append)

    async def enroll(self, name: str = "", seconds: float = 3600.0) -> str:
        """The address of a temporary account."""
        request = rq.EnrollWorker(name=name, valid_seconds=seconds)
        await self.enrollment.enroll(self.caller(), request)
        jid: str = self.replies.pop().jid
        return jid

    async def join(self, temporary: str, *names: str) -> list[Any]:
        """All of these join at once; returns the answers."""
        answers: list[Any] = []

        def reply(answer: Any) -> None:
            self.accounts.story.append(f"answered {type(answer).__name__}")
            answers.append(answer)

        for name in names:
            self.enrollment.join(f"{temporary}/r", Join(version=VERSION, name=name), reply)
        await self.quiet()
        return answers

    async def revoke(self, *names: str) -> list[str]:
        request = rq.RevokeWorkers(names=list(names))
        await self.enrollment.revoke(self.caller(), request)
        found: list[str] = self.replies.pop().what
        return found

    async def quiet(self) -> None:
        """Nothing is under way any more."""
        while self.enrollment._tasks:
            # gather() of tasks that have ended returns at once since Python 3.12, before the loop
            # has run what takes them out of the set.
            done, _ = await asyncio.wait(self.enrollment._tasks)
            for task in done:
                task.result()


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> House:
    house = House(tmp_path)
    house.driver.now = NOW
    monkeypatch.setattr(shell, "awake_or_asleep", lambda: house.driver.now)
    return house


async def test_a_join_makes_an_account_tells_the_machine_and_spends_the_token(house: House) -> None:
    temporary = await house.enroll()
    house.accounts.story.clear()
    [answer] = await house.join(temporary, "lab7")
    assert answer == NewAccount(
        jid=f"lab7@{HOME}", password=house.accounts.passwords[f"lab7@{HOME}"]
    )
    assert list(house.accounts.passwords) == [f"lab7@{HOME}"]
    assert house.accounts.story == [
        "made lab7",
        "answered NewAccount",
        f"deleted {temporary.partition('@')[0]}",
    ]


async def test_of_two_at_the_same_time_one_joins(house: House) -> None:
    temporary = await house.enroll()
    answers = await house.join(temporary, "lab7", "lab8", "lab9")
    assert sorted(type(each).__name__ for each in answers) == ["NewAccount", "Refused", "Refused"]
    refused = next(each for each in answers if isinstance(each, Refused))
    assert refused == Refused(reason="the token was used already, or withdrawn")
    assert list(house.accounts.passwords) == [f"lab7@{HOME}"]


async def test_who_asks_for_a_taken_name_may_ask_for_another(house: House) -> None:
    house.accounts.passwords[f"lab7@{HOME}"] = "old"
    temporary = await house.enroll()
    [refused] = await house.join(temporary, "lab7")
    assert (refused.code, refused.reason) == ("usage", "there is a worker lab7 already")
    assert "--name" in refused.hint
    assert "worker revoke lab7" in refused.hint
    [joined] = await house.join(temporary, "lab8")
    assert joined.jid == f"lab8@{HOME}"
    assert house.accounts.passwords[f"lab7@{HOME}"] == "old"


async def test_an_expired_token_is_refused_and_deleted(house: House) -> None:
    temporary = await house.enroll(seconds=60.0)
    house.driver.now += 60.0
    [refused] = await house.join(temporary, "lab7")
    assert refused.code == "not-allowed"
    assert refused.reason.startswith("the token expired at 2026-11-20 15:54:20 UTC")
    assert house.accounts.passwords == {}


async def test_an_account_that_only_looks_like_it_cannot_join(house: House) -> None:
    [refused] = await house.join(f"join-us@{HOME}", "lab7")
    assert "was not made by this pool" in refused.reason
    assert house.accounts.passwords == {}


async def test_another_version_is_told_so(house: House) -> None:
    temporary = await house.enroll()
    answers: list[Any] = []
    house.enrollment.join(temporary, Join(version=99), answers.append)
    await house.quiet()
    assert "version" in answers[0].reason
    assert temporary in house.accounts.passwords


async def test_expired_accounts_are_deleted_when_the_manager_comes_back(house: House) -> None:
    late = await house.enroll(seconds=60.0)
    early = await house.enroll(seconds=3600.0)
    house.driver.now += 100.0
    house.start()
    house.enrollment.on_online()
    await house.quiet()
    assert late not in house.accounts.passwords
    assert early in house.accounts.passwords
    assert (house.directory / "invited").read_text() == f"{early}\n"


async def test_the_next_look_is_when_the_next_one_expires(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def call_later(seconds: float, _then: object) -> Any:
        pauses.append(seconds)
        return SimpleNamespace(cancel=lambda: None)

    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", call_later)
    await house.enroll(seconds=3600.0)
    await house.enroll(seconds=60.0)
    await house.quiet()
    assert pauses == [3600.0, 60.0]


async def test_without_rights_at_the_server_an_admin_hears_what_to_configure(house: House) -> None:
    house.accounts.trouble = NotAllowed("the manager may not", hint="admins = ...")
    with pytest.raises(NotAllowed, match="the manager may not"):
        await house.enroll()
    assert not (house.directory / "invited").exists()
    [refused] = await house.join(f"{Invitation(int(NOW) + 9, 'w').account}@{HOME}", "lab7")
    assert house.accounts.passwords == {}
    assert (refused.reason, refused.hint) == ("the manager may not", "admins = ...")


async def test_a_name_that_is_taken_is_refused_when_it_is_asked_for(house: House) -> None:
    house.accounts.passwords[f"lab7@{HOME}"] = "old"
    with pytest.raises(UsageError, match="there is a worker lab7 already"):
        await house.enroll("lab7")


async def test_a_revoked_worker_loses_its_account_and_its_place(house: House) -> None:
    for name in ("lab7", "lab70"):
        house.accounts.passwords[f"{name}@{HOME}"] = "secret"
        house.driver.join(f"{name}@{HOME}/one", f"{name}@{HOME}/two")
    assert await house.revoke("lab7") == [f"lab7@{HOME}"]
    assert list(house.accounts.passwords) == [f"lab70@{HOME}"]
    assert sorted(house.driver.pool.state.workers) == [f"lab70@{HOME}/one", f"lab70@{HOME}/two"]


async def test_a_worker_is_revoked_by_address_too_and_when_its_account_is_gone(
    house: House,
) -> None:
    house.driver.join(f"lab7@{HOME}/one")
    assert await house.revoke(f"lab7@{HOME}/one", "lab7") == [f"lab7@{HOME}"]
    assert house.driver.pool.state.workers == {}


async def test_revoked_workers_are_forgotten_one_by_one_as_they_are_deleted(house: House) -> None:
    """The server may fail at a later one."""
    for name in ("lab7", "lab8"):
        house.accounts.passwords[f"{name}@{HOME}"] = "secret"
        house.driver.join(f"{name}@{HOME}/one")
    house.accounts.kept = f"lab8@{HOME}"
    with pytest.raises(KestrelError, match="did not delete"):
        await house.revoke("lab7", "lab8")
    assert list(house.driver.pool.state.workers) == [f"lab8@{HOME}/one"]
    assert house.enrollment.revoked_by(f"lab7@{HOME}/one")
    assert not house.enrollment.revoked_by(f"lab8@{HOME}/one")


async def test_parts_of_names_and_other_peoples_accounts_are_not_revoked(house: House) -> None:
    house.accounts.passwords[f"lab7@{HOME}"] = "secret"
    house.driver.join(f"lab7@{HOME}/one")
    with pytest.raises(NotFound, match=f"no worker with the account lab@{HOME}"):
        await house.revoke("lab")
    with pytest.raises(UsageError, match="no worker's account"):
        await house.revoke("ada@users.example.org")
    assert f"lab7@{HOME}" in house.accounts.passwords


@pytest.mark.parametrize("name", ["\x01", "a\x00b", "x" * 2000, "", "\ufffe", "a b", "\n"])
async def test_a_name_that_no_account_can_have_is_not_looked_up_at_the_server(
    house: House, name: str
) -> None:
    """Most of it XML cannot carry: the server would end the manager's connection."""
    with pytest.raises(KestrelError) as refused:
        await house.revoke(name)
    assert isinstance(refused.value, UsageError)
    assert house.accounts.asked == set()


async def test_a_revoked_account_is_looked_for_before_it_may_work_again(house: House) -> None:
    lab7 = f"lab7@{HOME}/one"
    house.accounts.passwords[f"lab7@{HOME}"] = "secret"
    assert not house.enrollment.revoked_by(lab7)
    await house.revoke("lab7")
    house.enrollment.check(lab7)
    await house.quiet()
    assert house.enrollment.revoked_by(lab7)
    assert house.accounts.story[-1] == "ended lab7"
    house.accounts.passwords[f"lab7@{HOME}"] = "new"
    house.enrollment.check(lab7)
    await house.quiet()
    assert not house.enrollment.revoked_by(lab7), "it was made anew"


async def test_who_joins_under_a_revoked_name_is_welcome(house: House) -> None:
    house.accounts.passwords[f"lab7@{HOME}"] = "secret"
    await house.revoke("lab7")
    temporary = await house.enroll()
    await house.join(temporary, "lab7")
    assert not house.enrollment.revoked_by(f"lab7@{HOME}/one")


async def test_a_session_without_its_account_cannot_join(house: House) -> None:
    temporary = await house.enroll()
    await house.revoke(temporary)
    [refused] = await house.join(temporary, "lab7")
    assert refused.reason == "the token was used already, or withdrawn"
    assert house.accounts.passwords == {}


async def test_a_session_whose_account_was_used_cannot_join_again(house: House) -> None:
    temporary = await house.enroll()
    await house.join(temporary, "lab7")
    [refused] = await house.join(temporary, "lab8")
    assert refused.reason == "the token was used already, or withdrawn"
    house.driver.now += 3600.0
    house.enrollment.on_online()
    await house.quiet()
    assert house.enrollment._used == set(), "what has expired needs no remembering"
    [refused] = await house.join(temporary, "lab8")
    assert "expired" in refused.reason


@pytest.mark.parametrize("after", ["made lab7", "answered NewAccount"])
async def test_a_token_is_used_even_if_the_manager_dies_before_it_says_so(
    house: House, after: str
) -> None:
    temporary = await house.enroll()
    answers: list[Any] = []
    house.enrollment.join(f"{temporary}/r", Join(version=VERSION, name="lab7"), answers.append)
    while "made lab7" not in house.accounts.story or (after != "made lab7" and not answers):
        await asyncio.sleep(0)
    for task in list(house.enrollment._tasks):
        task.cancel()
    house.start()
    [refused] = await house.join(temporary, "lab8")
    assert refused.reason == "the token was used already, or withdrawn"
    house.enrollment.on_online()
    await house.quiet()
    assert list(house.accounts.passwords) == [f"lab7@{HOME}"]
    assert (house.directory / "invited").read_text() == ""


async def test_a_token_that_was_not_used_after_all_is_good_after_a_restart(house: House) -> None:
    house.accounts.passwords[f"lab7@{HOME}"] = "old"
    temporary = await house.enroll()
    await house.join(temporary, "lab7")
    house.start()
    house.enrollment.on_online()
    await house.quiet()
    [joined] = await house.join(temporary, "lab8")
    assert isinstance(joined, NewAccount)


async def test_where_the_use_of_a_token_cannot_be_noted_nobody_joins(house: House) -> None:
    temporary = await house.enroll()
    (house.directory / "invited.new").mkdir()
    [refused] = await house.join(temporary, "lab7")
    assert refused.code == "store-full"
    assert list(house.accounts.passwords) == [temporary]


async def test_a_token_expires_while_the_machine_sleeps_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that slept has a steady clock that is behind."""
    asleep = [0.0]
    boot = clocks.time.clock_gettime
    monkeypatch.setattr(shell, "awake_or_asleep", clocks.awake_or_asleep)
    monkeypatch.setattr(clocks.time, "clock_gettime", lambda which: boot(which) + asleep[0])
    temporary = await house.enroll(seconds=60.0)
    asleep[0] = 61.0
    [refused] = await house.join(temporary, "lab7")
    assert "expired" in refused.reason


@pytest.mark.parametrize("ahead_seconds", [864_000.0, -864_000.0])
async def test_a_token_expires_when_it_was_said_however_the_clock_is_set(
    house: House, monkeypatch: pytest.MonkeyPatch, ahead_seconds: float
) -> None:
    real = clocks.time.time
    monkeypatch.setattr(shell, "awake_or_asleep", clocks.awake_or_asleep)
    temporary = await house.enroll(seconds=600.0)
    monkeypatch.setattr(clocks.time, "time", lambda: real() + ahead_seconds)
    [answer] = await house.join(temporary, "lab7")
    assert isinstance(answer, NewAccount)


async def test_a_worker_whose_account_the_server_keeps_stays_listed(house: House) -> None:
    house.driver.join(f"lab7@{HOME}/one")
    house.accounts.trouble = KestrelError("the server did not delete the account")
    with pytest.raises(KestrelError, match="did not delete"):
        await house.revoke("lab7")
    assert f"lab7@{HOME}/one" in house.driver.pool.state.workers


def test_temporary_accounts_can_join_and_nothing_else() -> None:
    options = ManagerOptions(
        domain="example.org",
        secret_file=Path("x"),
        data_dir=Path("x"),
        worker_hosts=(HOME,),
    )
    access = Access(options)
    stranger = f"join-1-x@{HOME}/r"
    assert access.may_join(stranger)
    assert not access.may_work(stranger)
    assert not access.may_submit(stranger)
    worker = f"joiner@{HOME}/r"
    assert (access.may_join(worker), access.may_work(worker)) == (False, True)
    assert not access.may_join("join-1-x@users.example.org")


async def test_not_every_account_that_ever_was_is_remembered(house: House) -> None:
    """Each environment has a worker with an account of its own, which is deleted with it."""
    for number in range(shell.MOST_GONE + 5):
        await house.enrollment.take_away(f"env-gpu-{number}@{HOME}", "pool@example.org")
    known = [
        n
        for n in range(shell.MOST_GONE + 5)
        if house.enrollment.revoked_by(f"env-gpu-{n}@{HOME}/x")
    ]
    assert known == list(range(5, shell.MOST_GONE + 5)), "the last ones"
