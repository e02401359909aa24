"""Submissions of one session: few messages for many jobs, and to each its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from cli_fake_pool import CONTEXT, FakePool
from jobkit import job_spec

from kestrelctl.client import submissions as client_submissions
from kestrelctl.client.pool import AsyncClient
from kestrelctl.client.submissions import Submissions
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import Busy, KestrelError, OverQuota, Unreachable, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.requests import MOST_TOGETHER


class Slow:
    """A pool that answers what it is asked when the test lets it."""

    def __init__(self, **answers: Any) -> None:
        self.fake = FakePool(SubmitJob=answers.pop("SubmitJob", _numbered), **answers)
        self.answering: list[asyncio.Event] = []
        self.submissions = Submissions(self)  # type: ignore[arg-type]

    async def ask(self, request: rq.AnyRequest, *_more: Any, **_options: Any) -> an.AnyAnswer:
        going_on = asyncio.Event()
        self.answering.append(going_on)
        await going_on.wait()
        return await self.fake.ask(request)

    async def sends(self, *numbers: int) -> list[asyncio.Task[an.Submitted]]:
        """Submits jobs: the first two one after the other, so that two messages are unanswered."""
        first, second, *others = numbers
        found = []
        for burst in ([first], [second], others):
            found += self.send(*burst)
            await turns()
        return found

    def send(self, *numbers: int) -> list[asyncio.Task[an.Submitted]]:
        return [
            asyncio.create_task(
                self.submissions.send(rq.SubmitJob(spec=spec(number), key=str(number)))
            )
            for number in numbers
        ]

    async def let(self, *places: int) -> None:
        """Answers messages, by the order in which they came."""
        await turns()
        for place in places:
            self.answering[place].set()
        await turns()

    async def all(self) -> None:
        """Answers everything, until nothing more comes."""
        await turns()
        for event in self.answering:
            event.set()
            await turns()

    def messages(self) -> list[list[str]]:
        """The keys of the jobs of each message that was answered."""
        return [keys_of(request) for request in self.fake.asked]


def keys_of(request: Any) -> list[str]:
    jobs = request.jobs if isinstance(request, rq.SubmitEach) else [request]
    return [job.key for job in jobs]


def spec(number: int) -> JobSpec:
    return job_spec(name=str(number))


def _numbered(request: rq.SubmitJob) -> an.Submitted:
    return an.Submitted(id="", job_id=int(request.key), tasks=1)


def refusing(*numbers: int, error: KestrelError) -> Callable[[rq.SubmitJob], Any]:
    def answer(request: rq.SubmitJob) -> Any:
        return error if int(request.key) in numbers else _numbered(request)

    return answer


async def turns() -> None:
    """Everybody gets their turn."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_those_that_come_while_others_are_unanswered_go_together() -> None:
    pool = Slow()
    sent = await pool.sends(*range(1, 51))
    assert len(pool.answering) == 2, "the first go at once"
    await pool.let(0)
    await pool.all()
    assert pool.messages() == [["1"], ["2"], [str(number) for number in range(3, 51)]]
    assert [(await each).job_id for each in sent] == list(range(1, 51))


async def test_a_message_has_no_more_than_the_pool_takes_in_one() -> None:
    pool = Slow()
    sent = await pool.sends(*range(1, 303))
    await pool.all()
    assert [len(keys) for keys in pool.messages()] == [1, 1, MOST_TOGETHER, MOST_TOGETHER, 100]
    assert [(await each).job_id for each in sent] == list(range(1, 303))


async def test_those_of_one_turn_go_together_at_once() -> None:
    pool = Slow()
    sent = pool.send(1, 2, 3)
    await pool.all()
    assert pool.messages() == [["1", "2", "3"]]
    assert [(await each).job_id for each in sent] == [1, 2, 3]


async def test_large_ones_go_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_submissions, "MOST_BYTES", 1)
    pool = Slow()
    sent = await pool.sends(1, 2, 3, 4)
    await pool.all()
    assert pool.messages() == [["1"], ["2"], ["3"], ["4"]]
    assert len([await each for each in sent]) == 4


async def test_the_refusal_of_one_is_its_own() -> None:
    pool = Slow(SubmitJob=refusing(4, error=OverQuota("you have too much in the queue")))
    sent = await pool.sends(1, 2, 3, 4, 5)
    await pool.all()
    found = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(each) for each in found] == [an.Submitted] * 3 + [OverQuota, an.Submitted]


async def test_one_for_which_the_manager_is_busy_is_sent_again() -> None:
    """By itself: then the connection waits before it asks again."""
    busy = [Busy("too many requests wait")]

    def answer(request: rq.SubmitJob) -> Any:
        return busy.pop() if request.key == "4" and busy else _numbered(request)

    pool = Slow(SubmitJob=answer)
    sent = await pool.sends(1, 2, 3, 4, 5)
    await pool.all()
    assert pool.messages() == [["1"], ["2"], ["3", "4", "5"], ["4"]]
    assert [(await each).job_id for each in sent] == [1, 2, 3, 4, 5]


async def test_a_manager_that_cannot_read_several_is_sent_them_one_by_one() -> None:
    pool = Slow(SubmitEach=UsageError("this is no request of the protocol"))
    sent = await pool.sends(1, 2, 3, 4)
    await pool.all()
    assert pool.messages() == [["1"], ["2"], ["3", "4"], ["3"], ["4"]]
    later = await pool.sends(5, 6, 7, 8)
    await pool.all()
    assert pool.messages()[5:] == [["5"], ["6"], ["7"], ["8"]]
    assert [(await each).job_id for each in sent + later] == list(range(1, 9))


async def test_a_lost_message_is_lost_for_all_whom_it_carried() -> None:
    pool = Slow(SubmitEach=Unreachable("the connection to the pool was lost"))
    sent = await pool.sends(1, 2, 3, 4)
    await pool.all()
    found = await asyncio.gather(*sent, return_exceptions=True)
    assert [type(each) for each in found] == [an.Submitted] * 2 + [Unreachable] * 2


async def test_what_nobody_waits_for_any_more_is_not_sent() -> None:
    pool = Slow()
    sent = await pool.sends(1, 2, 3, 4)
    sent[2].cancel()
    await turns()
    await pool.all()
    assert pool.messages() == [["1"], ["2"], ["4"]]


async def test_nobody_waits_for_a_session_that_is_closed() -> None:
    pool = Slow()
    sent = await pool.sends(1, 2, 3, 4)
    pool.submissions.close()
    found = await asyncio.gather(*sent, return_exceptions=True)
    assert [str(each) for each in found] == ["the session with the pool was closed"] * 4


async def test_a_program_that_submits_without_waiting_needs_few_messages() -> None:
    fake = FakePool()
    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:
        jobs = await asyncio.gather(*(pool.submit(["echo", str(n)]) for n in range(50)))
    assert [job.id for job in jobs] == [7] * 50
    assert len(fake.asked) == 1
    assert len(set(keys_of(fake.asked[0]))) == 50
