"""Asks the pool where the files are that tasks of a parent left."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.protocol import workers
from kestrelctl.worker.run.executor import AttemptRefused

#: A question without an answer is asked again after so long.
ANSWER_SECONDS = 10.0
#: The tasks of a job that start in this time share an answer.
KEEP_SECONDS = 60.0

#: (task id, the archive of what it left), in the order of the tasks.
Left = tuple[tuple[int, StoredFile], ...]
#: Job, parent, and the place of the task if its own files are asked for, else -1.
_Key = tuple[int, int, int]


class ParentFilesGone(AttemptRefused):
    """The pool cannot tell any more what tasks left; the message is for the attempt's result."""


class _Question:
    """A question about one parent, of the tasks of one job that are about to start here.

    Attributes:
        waiting: the attempts that wait for the answer.
        asked: attempts in whose name the next page was asked for.
        after: where that page begins.
        page: that page.
        answer: all pages together; None before the first attempt.
    """

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.waiting: dict[int, None] = {}
        self.asked: set[int] = set()
        self.after = -1
        self.page: asyncio.Future[workers.FilesFound] | None = None
        self.answer: asyncio.Task[Left] | None = None


class ParentFileQuestions:
    """The questions of one session. Tasks of a job that start at about the same time share one.

    Args:
        agent: of the session.
        send: sends a message to the pool.
    """

    def __init__(self, agent: Agent, send: Callable[[workers.Message], None]) -> None:
        self._agent = agent
        self._send = send
        self._questions: dict[_Key, _Question] = {}

    async def find(self, number: int, files: ParentFiles) -> Left:
        """Finds out what tasks of a parent left.

        Args:
            number: of a running attempt, whose job wants that.
            files: as its job says.

        Raises:
            ParentFilesGone: it cannot be had any more.
        """
        job_id, index = self._agent.identity(number)
        key = (job_id, files.job_id, index if files.each else -1)
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = _Question(files.job_id)
        question.waiting[number] = None
        if question.answer is None:
            question.answer = asyncio.create_task(self._ask(question))
            question.answer.add_done_callback(lambda _: self._forget_later(key, question))
        try:
            return await asyncio.shield(question.answer)
        finally:
            del question.waiting[number]
            if not question.waiting and not question.answer.done():
                question.answer.cancel()  # nobody wants to know any more
                self._forget(key, question)

    def on_found(self, page: workers.FilesFound) -> None:
        """Takes an answer of the pool."""
        for question in self._questions.values():
            awaited = question.page
            fits = question.parent == page.parent and question.after == page.after
            if awaited is None or awaited.done() or not fits:
                continue
            if page.number in question.asked:
                awaited.set_result(page)

    def _forget_later(self, key: _Key, question: _Question) -> None:
        answer = question.answer
        if answer is None or answer.cancelled() or answer.exception() is not None:
            self._forget(key, question)
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(KEEP_SECONDS, self._forget, key, question)

    def _forget(self, key: _Key, question: _Question) -> None:
        if self._questions.get(key) is question:
            del self._questions[key]

    async def _ask(self, question: _Question) -> Left:
        files: list[tuple[int, StoredFile]] = []
        after: int | None = -1
        while after is not None:
            question.after = after
            page = await self._next_page(question)
            if page.problem:
                raise ParentFilesGone(EndKind.NO_INPUT, page.problem)
            files += page.files
            after = page.next
        return tuple(files)

    async def _next_page(self, question: _Question) -> workers.FilesFound:
        """Asks until there is an answer, in the name of an attempt that still waits."""
        awaited = question.page = asyncio.get_running_loop().create_future()
        question.asked.clear()
        while True:
            if self._agent.welcomed:
                number = next(iter(question.waiting))
                question.asked.add(number)
                self._send(
                    workers.FindFiles(number=number, parent=question.parent, after=question.after)
                )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await asyncio.shield(awaited)
