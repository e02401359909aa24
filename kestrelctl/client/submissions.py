"""Jobs of one session on their way to the pool: those that come while others are unanswered go
together.

A server takes some hundred messages a second of an account, and a manager many more jobs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from kestrelctl.access.connection import Connection, ask
from kestrelctl.client.upload import ANSWER_SECONDS
from kestrelctl.errors import Busy, KestrelError, UsageError
from kestrelctl.protocol import codec
from kestrelctl.protocol.job_answers import Submitted, SubmittedEach
from kestrelctl.protocol.job_requests import MOST_TOGETHER, SubmitEach, SubmitJob

#: The most messages that are unanswered at a time: what they submit fits into the line of an
#: account at the manager (`manager.sending.turns.USER_LINES`).
MOST_MESSAGES = 2
#: The most bytes of jobs that go together; a larger one goes alone.
MOST_BYTES = codec.MAX_PAYLOAD_BYTES // 2


class _Submission(NamedTuple):
    request: SubmitJob
    size_bytes: int
    answer: asyncio.Future[Submitted]


class Submissions:
    """Sends submissions: at once while few messages are unanswered; none waits for company."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: deque[_Submission] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        #: Whether the manager is one that takes several in a message.
        self._together = True
        self._planned = False

    async def send(self, request: SubmitJob) -> Submitted:
        """Returns the answer to a submission.

        Raises:
            KestrelError: the pool refused it, or cannot be reached.
        """
        answer: asyncio.Future[Submitted] = asyncio.get_running_loop().create_future()
        size_bytes = codec.text_bytes(codec.encode(request))
        self._waiting.append(_Submission(request, size_bytes, answer))
        if not self._planned:  # those of the same turn of the loop go together
            self._planned = True
            asyncio.get_running_loop().call_soon(self._go_on)
        return await answer

    def close(self) -> None:
        """Ends all that is under way; what is unanswered may have been done."""
        for task in self._under_way:
            task.cancel()
        for each in self._waiting:
            _tell(each, _closed())

    def _go_on(self) -> None:
        self._planned = False
        while len(self._under_way) < MOST_MESSAGES and (part := self._next()):
            task = asyncio.create_task(self._deliver(part))
            self._under_way.add(task)
            task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            self._go_on()

    def _next(self) -> list[_Submission]:
        """Takes out those that go in the next message; those that nobody waits for go nowhere."""
        part: list[_Submission] = []
        room = MOST_BYTES
        while self._waiting and len(part) < (MOST_TOGETHER if self._together else 1):
            first = self._waiting[0]
            if not first.answer.done():
                if part and first.size_bytes > room:
                    break
                part.append(first)
                room -= first.size_bytes
            self._waiting.popleft()
        return part

    async def _deliver(self, part: list[_Submission]) -> None:
        """Sends some, together if they are several, and tells each what became of it."""
        try:
            if len(part) == 1:
                _tell(part[0], await self._ask(part[0].request))
                return
            together = SubmitEach(jobs=[each.request for each in part])
            try:
                found = await ask(self._connection, together, SubmittedEach, ANSWER_SECONDS)
            except UsageError:  # a manager of an earlier version cannot read it
                self._together = False
                await asyncio.gather(*map(self._deliver_alone, part))
                return
            alone = []
            for each, answer in zip(part, found.answers, strict=True):
                if isinstance(answer, Submitted):
                    _tell(each, answer)
                elif isinstance(refusal := answer.error(), Busy):
                    alone.append(each)
                else:
                    _tell(each, refusal)
            await asyncio.gather(*map(self._deliver_alone, alone))
        except asyncio.CancelledError:
            for each in part:
                _tell(each, _closed())
            raise
        except Exception as error:
            for each in part:
                _tell(each, error)

    async def _deliver_alone(self, one: _Submission) -> None:
        """Sends one by itself: then the connection asks again while the manager is busy."""
        try:
            _tell(one, await self._ask(one.request))
        except KestrelError as error:
            _tell(one, error)

    async def _ask(self, request: SubmitJob) -> Submitted:
        return await ask(self._connection, request, Submitted, ANSWER_SECONDS)


def _closed() -> KestrelError:
    return KestrelError("the session with the pool was closed")


def _tell(one: _Submission, answer: Submitted | Exception) -> None:
    """Says what became of a submission, unless nobody waits for that any more."""
    if one.answer.done():
        return
    if isinstance(answer, Submitted):
        one.answer.set_result(answer)
    else:
        one.answer.set_exception(answer)
