"""A worker asks where files of parents are: once for tasks that start together, until it hears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from store_samples import STORED

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.template import Template
from kestrelctl.protocol import workers
from kestrelctl.worker.connection import parent_file_questions
from kestrelctl.worker.connection.parent_file_questions import (
    Left,
    ParentFileQuestions,
    ParentFilesGone,
)

PARENT = 3


class Desk:
    """A session's questions, with attempts 1 to 4 of job 7 and 5 of job 8 that run.

    Attributes:
        sent: the questions.
    """

    def __init__(self) -> None:
        self.agent = Agent({"cpus": 10.0})
        self.agent.welcomed = True
        self.sent: list[workers.FindFiles] = []
        templates = [Template(job_id=job_id, program=Program(argv=("true",))) for job_id in (7, 8)]
        spans = [(1, 7, 0, 4, 0, 0), (5, 8, 0, 1, 0, 0)]
        self.agent.on_run(spans, [{"cpus": 1000}], templates, [], [], 0.0)
        while self.agent.start_next(0.0):
            pass
        self.questions = ParentFileQuestions(self.agent, self._send)
        self.asking: list[asyncio.Task[Left]] = []

    def _send(self, message: workers.Message) -> None:
        assert isinstance(message, workers.FindFiles)
        self.sent.append(message)

    async def ask(self, *numbers: int, each: bool = False) -> list[asyncio.Task[Left]]:
        files = ParentFiles(name="p", job_id=PARENT, each=each)
        found = [asyncio.create_task(self.questions.find(n, files)) for n in numbers]
        self.asking += found
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return found

    def answer(self, *task_ids: int, after: int = -1, more: int | None = None) -> None:
        """Answers the latest question."""
        number = self.sent[-1].number
        files = [(task_id, STORED) for task_id in task_ids]
        page = workers.FilesFound(number=number, parent=PARENT, after=after, files=files, next=more)
        self.questions.on_found(page)


async def until(condition: Callable[[], bool]) -> None:
    """Returns once it is so."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    for each in desk.asking:
        each.cancel()
    await asyncio.gather(*desk.asking, return_exceptions=True)


async def test_tasks_that_start_together_share_an_answer(desk: Desk) -> None:
    first, second = await desk.ask(1, 2)
    assert [(each.number, each.parent, each.after) for each in desk.sent] == [(1, PARENT, -1)]
    desk.answer(1, 2)
    assert await first == await second == ((1, STORED), (2, STORED))
    [third] = await desk.ask(3)
    assert len(await third) == 2
    assert len(desk.sent) == 1


async def test_each_job_asks_for_itself(desk: Desk) -> None:
    await desk.ask(1, 5)
    assert [each.number for each in desk.sent] == [1, 5]


async def test_a_task_that_wants_the_files_of_its_own_parent_alone_asks_for_itself(
    desk: Desk,
) -> None:
    first, second = await desk.ask(1, 2, each=True)
    assert [question.number for question in desk.sent] == [1, 2]
    desk.answer(8)
    desk.questions.on_found(workers.FilesFound(number=1, parent=PARENT, files=[(7, STORED)]))
    assert [task_id for task_id, _ in await first] == [7]
    assert [task_id for task_id, _ in await second] == [8]


async def test_pages_come_one_after_the_other(desk: Desk) -> None:
    [asking] = await desk.ask(1)
    desk.answer(1, more=40)
    await until(lambda: len(desk.sent) == 2)
    assert desk.sent[-1].after == 40
    desk.answer(9, after=-1)  # the first page once more
    desk.answer(50, after=40)
    assert [task_id for task_id, _ in await asking] == [1, 50]


async def test_it_is_asked_again_until_there_is_an_answer_in_the_name_of_who_still_waits(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent_file_questions, "ANSWER_SECONDS", 0.001)
    first, second = await desk.ask(1, 2)
    first.cancel()
    await until(lambda: desk.sent[-1].number == 2)
    desk.answer(1)
    assert len(await second) == 1


async def test_nothing_is_asked_while_the_pool_does_not_know_the_session(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent_file_questions, "ANSWER_SECONDS", 0.001)
    desk.agent.welcomed = False
    [asking] = await desk.ask(1)
    assert desk.sent == []
    desk.agent.welcomed = True
    await until(lambda: bool(desk.sent))
    desk.answer(1)
    await asking


async def test_what_nobody_waits_for_is_asked_no_more(desk: Desk) -> None:
    [asking] = await desk.ask(1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await desk.ask(2)
    assert [each.number for each in desk.sent] == [1, 2]


async def test_what_the_pool_has_forgotten_cannot_be_had(desk: Desk) -> None:
    first, second = await desk.ask(1, 2)
    page = workers.FilesFound(number=1, parent=PARENT, problem="the pool has forgotten job 3")
    desk.questions.on_found(page)
    for each in (first, second):
        with pytest.raises(ParentFilesGone, match="no-input: the pool has forgotten job 3"):
            await each
    await desk.ask(3)
    assert len(desk.sent) == 2, "a later task asks anew"


async def test_an_answer_that_nobody_asked_for_is_no_error(desk: Desk) -> None:
    desk.questions.on_found(workers.FilesFound(number=9, parent=PARENT))
    [asking] = await desk.ask(1)
    desk.questions.on_found(workers.FilesFound(number=2, parent=PARENT, files=[(1, STORED)]))
    desk.questions.on_found(workers.FilesFound(number=1, parent=PARENT + 1, files=[(1, STORED)]))
    await asyncio.sleep(0)
    assert not asking.done()
    desk.answer()
    desk.answer()
    assert await asking == ()
