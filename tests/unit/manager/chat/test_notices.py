"""Owners are told of the ends of their jobs, whatever happens to the manager and its session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from managerkit import FarStore, PlayedManager, settled

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.chat import words
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.records import JobRecord
from kestrelctl.errors import KestrelError
from kestrelctl.manager.chat import conversations, notices
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool"
HERE = f"{ADA}/phone"


class Played(PlayedManager):
    """A manager whose server takes messages when it is told to."""

    def __init__(self, directory: Path, store: FarStore | None = None) -> None:
        self.waiting: list[Callable[[], None]] = []
        super().__init__(directory, store=store)
        self.session: Any = self.service.session
        self.session.when_taken = self.waiting.append

    async def says(self, body: str, to: str = "jobs@pool", sender: str = HERE) -> str:
        """What is answered to somebody's words, by the address that he wrote to."""
        self.listener.on_body(sender, to, body)
        await self.settled()
        said = zip(self.chats, self.chat_senders, strict=True)
        answer, address = [(text, by) for (whom, text), by in said if whom == sender][-1]
        assert address == to.partition("/")[0]
        return answer

    async def server_takes(self) -> None:
        """The server has dealt with all that was sent."""
        waiting = list(self.waiting)
        self.waiting.clear()
        for done in waiting:
            done()
        await self.settled()

    async def reconnects(self) -> None:
        """The session was lost, and is there again."""
        self.waiting.clear()
        self.listener.on_online()
        await self.settled()

    def notices(self) -> list[str]:
        """What the owner was told, wherever he is."""
        return [text for to, text in self.sent if to == ADA]


@pytest.fixture
async def manager(tmp_path: Path) -> Played:
    return Played(tmp_path)


async def end_a_job(manager: Played, notify: str = "always") -> None:
    """Jobs without workers end when they are cancelled."""
    assert "Job " in await manager.says(f"submit --notify {notify} -- true")
    assert "Cancelled job " in await manager.says("cancel last")


async def test_the_owner_is_told_once_at_his_account(manager: Played) -> None:
    await end_a_job(manager)
    assert [text[:47] for text in manager.notices()] == [
        "job 1 cancelled: 0 done, 0 failed, 1 cancelled "
    ]
    await manager.server_takes()
    assert manager.store.untold(10) == []
    await manager.reconnects()
    assert len(manager.notices()) == 1


async def test_a_message_that_was_lost_with_the_session_is_sent_again(manager: Played) -> None:
    await end_a_job(manager)
    assert [record.job_id for record in manager.store.untold(10)] == [1]
    await manager.reconnects()
    assert len(manager.notices()) == 2
    await manager.server_takes()
    await manager.reconnects()
    assert len(manager.notices()) == 2


async def test_what_the_server_has_is_not_sent_again_while_that_is_stored(manager: Played) -> None:
    await end_a_job(manager)
    [done] = manager.waiting
    manager.store.full = True  # it takes until there is room
    done()
    await manager.reconnects()
    assert len(manager.notices()) == 1
    manager.store.full = False
    await settled()
    assert len(manager.notices()) == 1


async def test_what_ends_while_the_server_is_away_is_told_when_it_is_back(manager: Played) -> None:
    await manager.says("submit -- true")
    manager.session.online = False
    await manager.says("cancel last")
    assert manager.notices() == []
    manager.session.online = True
    await manager.reconnects()
    assert len(manager.notices()) == 1


async def test_a_job_that_nobody_wants_to_hear_of_is_not_told(manager: Played) -> None:
    await end_a_job(manager, "never")
    await end_a_job(manager, "failures")
    await manager.ask(HERE, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    await manager.ask(HERE, rq.CancelJobs(jobs="last"))
    assert manager.notices() == []
    assert manager.store.untold(10) == []


async def test_a_program_that_wishes_it_is_told_too(manager: Played) -> None:
    await manager.ask(
        HERE, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)), notify=Notify.ALWAYS))
    )
    await manager.ask(HERE, rq.CancelJobs(jobs="last"))
    assert len(manager.notices()) == 1


async def test_many_are_told_a_few_at_a_time_and_each_once(
    manager: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "MOST_AT_ONCE", 3)
    for _ in range(8):
        await end_a_job(manager)
    assert len(manager.notices()) <= 3
    for _ in range(4):
        await manager.server_takes()
    found = [text.split()[1] for text in manager.notices()]
    assert sorted(found) == [f"{n}" for n in range(1, 9)]


async def test_a_job_that_is_brought_back_is_told_of_again(manager: Played) -> None:
    await end_a_job(manager)
    await manager.server_takes()
    await manager.ask(HERE, rq.RetryJobs(jobs="1"))
    assert manager.store.untold(10) == []
    await manager.says("cancel 1")
    assert len(manager.notices()) == 2


async def test_an_end_that_comes_before_the_server_has_the_word_of_the_first_is_told(
    manager: Played,
) -> None:
    await end_a_job(manager)
    manager.now += 1.0
    await manager.ask(HERE, rq.RetryJobs(jobs="1"))
    await manager.says("cancel 1")
    assert len(manager.notices()) == 1
    await manager.server_takes()
    assert len(manager.notices()) == 2
    await manager.server_takes()
    assert manager.store.untold(10) == []


async def test_owners_are_told_when_a_store_behind_a_network_answers(tmp_path: Path) -> None:
    store = FarStore(MemoryStore())
    manager = Played(tmp_path, store)
    for _ in range(2):
        await manager.says("submit --notify always -- true")
    store.is_far = True
    store.answers.clear()
    for job_id in (1, 2):
        manager.service.handle(ev.Cancel(at=manager.now, cause=ADA, request="", job_id=job_id))
        await manager.settled()
    assert manager.notices() == []
    store.answers.set()
    await manager.settled()
    assert [text.split()[1] for text in manager.notices()] == ["1", "2"]


async def test_a_job_that_ends_while_there_is_nothing_to_tell_is_told_of(tmp_path: Path) -> None:
    """The answer that there is nothing may be older than that end."""
    store = FarStore(MemoryStore())
    manager = Played(tmp_path, store)
    await manager.says("submit --notify always -- true")
    asked, answered = store.ask, asyncio.Event()

    async def late(question: Callable[[Any], Any]) -> Any:
        found = await asked(question)
        await answered.wait()
        return found

    store.ask = late  # type: ignore[method-assign]
    manager.listener.on_online()
    await manager.settled()
    manager.service.handle(ev.Cancel(at=manager.now, cause=ADA, request="", job_id=1))
    await manager.settled()
    answered.set()
    await manager.settled()
    assert len(manager.notices()) == 1


async def test_a_session_that_is_lost_while_the_store_is_asked_has_nobody_told_twice(
    tmp_path: Path,
) -> None:
    store = FarStore(MemoryStore())
    manager = Played(tmp_path, store)
    await manager.says("submit --notify always -- true")
    store.answers.clear()
    manager.service.handle(ev.Cancel(at=manager.now, cause=ADA, request="", job_id=1))
    await manager.settled()
    await manager.reconnects()
    store.answers.set()
    await manager.settled()
    assert len(manager.notices()) == 1


async def test_tasks_that_cannot_be_read_keep_no_owner_from_being_told(
    manager: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: dict[str, Any] = {
        "owner": ADA,
        "spec": JobSpec(program=Program(argv=("true",))),
        "submitted_at": 1.0,
        "state": "failed",
        "ended_at": 2.0,
        "untold": True,
        "counts": Counts(failed=1),
    }
    await manager.store.commit([JobRecord(job_id=n, **ended) for n in (1, 2)])

    def unreadable(*_: object, **__: object) -> None:
        raise KestrelError("tasks of job 1 cannot be read in the store")

    monkeypatch.setattr(manager.store, "tasks", unreadable)
    await manager.reconnects()
    assert manager.notices() == [f"job {n} failed: 0 done, 1 failed in 1.0 s" for n in (1, 2)]


async def test_words_are_counted(manager: Played) -> None:
    await manager.says("help")
    assert ("chat", "in", 1, 4) in list(manager.service.stanzas.counted())


async def test_strangers_are_told_no_more_than_that(manager: Played) -> None:
    manager.listener.on_body("eve@elsewhere/1", "jobs@pool", "jobs")
    await settled()
    assert manager.sent == [("eve@elsewhere/1", "This account is no user of the pool.")]


async def test_a_message_for_another_address_is_none_for_jobs(manager: Played) -> None:
    manager.listener.on_body(HERE, "pool@pool", "help")
    await settled()
    ((_, answer),) = manager.sent
    assert "write to jobs@pool" in answer


@pytest.mark.parametrize(("sender", "says"), [(HERE, "I am away."), ("eve@elsewhere/1", "Out.")])
async def test_a_program_that_answers_whatever_it_is_sent_is_not_answered_for_ever(
    manager: Played, sender: str, says: str
) -> None:
    manager.listener.on_body(sender, "jobs@pool", says)
    answered = 0
    while len(manager.chats) > answered:
        answered = len(manager.chats)
        assert answered <= conversations.IDLE_MESSAGES
        manager.listener.on_body(sender, "jobs@pool", says)
        await settled()
    assert "one such message every ten seconds" in manager.chats[-1][1]
    assert (await manager.says("jobs")).startswith("You have no jobs.")
    manager.now += 1 / conversations.IDLE_MESSAGES_PER_SECOND
    assert (await manager.says("help", sender=sender))[:4] in ("I ru", "This")


async def test_accounts_that_said_nothing_of_late_are_forgotten(manager: Played) -> None:
    found = manager.listener._conversations
    for n in range(2_000):
        manager.now += 1.0
        manager.listener.on_body(f"eve{n}@elsewhere/1", "jobs@pool", "hello")
    assert len(found._idle) <= 1_010


async def test_a_mistake_at_one_notice_keeps_later_ones_not_back(
    manager: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> str:
        raise ValueError("a mistake")

    with monkeypatch.context() as broken:
        broken.setattr(notices, "notice", fails)
        await end_a_job(manager)
    assert not manager.notices()
    await end_a_job(manager)
    assert len(manager.notices()) == 2


async def test_a_message_at_which_the_manager_fails_is_answered_like_any_other(
    manager: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> str:
        raise ValueError("thousands of digits")

    monkeypatch.setattr(words, "read", fails)
    assert await manager.says("cancel 1") == "The manager failed at this message."


async def test_a_jobs_own_address_answers_and_needs_no_number(manager: Played) -> None:
    await manager.says("submit -- true")
    await manager.says("submit -- true")
    assert (await manager.says("status", "job-1@pool")).startswith("Job 1: 0 of 1 done")
    assert (await manager.says("explain", "job-1@pool/x")).startswith("Job 1: 1 task waiting")
    assert (await manager.says("cancel 2", "job-1@pool")).startswith("This is the address of job 1")
    assert await manager.says("cancel", "job-1@pool") == "Cancelled job 1: 1 task stopped."
    assert (await manager.says("job 2")).startswith("Job 2: 0 of 1 done")


async def test_a_jobs_own_address_tells_others_nothing(manager: Played) -> None:
    await manager.says("submit -- true")
    for job in (1, 999):
        for word in ("status", "explain", "logs", "logs 1", "cancel"):
            answer = await manager.says(word, f"job-{job}@pool", "bob@users.pool/1")
            assert "here is no job" in answer, word
    stranger = await manager.says("status", "job-1@pool", "eve@elsewhere/1")
    assert stranger == "This account is no user of the pool."
    assert (await manager.says("status", "job-1@pool")).startswith("Job 1: 0 of 1 done")


@pytest.mark.parametrize("to", ["job-0@pool", "job-01@pool", "job-x@pool", "job-1@elsewhere"])
async def test_what_is_no_jobs_address_is_none(manager: Played, to: str) -> None:
    await manager.says("submit -- true")
    before = len(manager.sent)
    manager.listener.on_body(HERE, to, "cancel")
    await settled()
    assert len(manager.sent) == before
    assert manager.listener.addresses.job_id(to) is None


async def test_the_pool_itself_answers_words_because_it_can_be_a_contact(manager: Played) -> None:
    assert (await manager.says("help", "pool")).startswith("I run jobs.")
    manager.listener.on_body("eve@elsewhere/1", "pool", "jobs")
    await settled()
    assert manager.sent[-1] == ("eve@elsewhere/1", "This account is no user of the pool.")


async def test_who_has_no_job_yet_is_told_without_his_address(manager: Played) -> None:
    for body in ("job", "logs", "explain", "cancel last"):
        assert await manager.says(body) == "You have submitted no job yet."


async def test_json_is_answered_by_json(manager: Played) -> None:
    assert (await manager.says('{"type": "job_status"}')).startswith('{"type":"jobs"')
    assert (await manager.says("  {oops")).startswith('{"type":"error"')


async def test_a_mail_that_is_noted_meanwhile_has_nobody_told_twice(
    manager: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    await end_a_job(manager)
    disk, commit = asyncio.Semaphore(0), manager.store.commit

    async def slow(*args: Any) -> None:
        await disk.acquire()
        await commit(*args)

    monkeypatch.setattr(manager.store, "commit", slow)
    mailed = [(1, manager.now)]
    manager.service.handle(ev.OwnersTold(at=manager.now, cause="mail", ends=mailed, by_mail=True))
    await settled()
    for taken in manager.waiting:
        taken()
    disk.release()
    await settled()
    assert len(manager.notices()) == 1, "that it was told is not stored yet"
    disk.release()
    await manager.settled()
    assert len(manager.notices()) == 1
