"""Hands users' requests to the core, and waits for its answers until these are durable."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.errors import BY_CODE, KestrelError
from kestrelctl.manager.service import Service


class PendingAnswers:
    """Answers of the core that requests wait for, each known by a token."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tokens = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[fx.Answer]] = {}
        service.listen(fx.Answer, self._on_answer)

    async def answer_to(self, make: Callable[[str], ev.Event]) -> fx.Answer:
        """Gives the core an event, and returns its answer once that is durable.

        Args:
            make: builds the event from the token that its answer will carry.

        Raises:
            KestrelError: the core refused.
        """
        token = str(next(self._tokens))
        future: asyncio.Future[fx.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        self._service.handle(make(token))
        answer = await future
        if answer.error is not None:
            raise BY_CODE.get(answer.error, KestrelError)(answer.message, hint=answer.hint or None)
        return answer

    def _on_answer(self, answer: fx.Answer) -> None:
        future = self._waiting.pop(answer.request, None)
        if future is not None and not future.done():
            future.set_result(answer)
