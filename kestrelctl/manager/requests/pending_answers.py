"""Hands users' requests to the core, and waits for its answers until these are durable."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import BY_CODE, KestrelError, StoreFull
from kestrelctl.manager.service import Service


class PendingAnswers:
    """Answers of the core that requests wait for, each known by a token.

    A manager has one: another would take its tokens for its own.
    """

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
        [answer] = await self.answers_to([make])
        return answer

    async def answers_to(self, makes: Iterable[Callable[[str], ev.Event]]) -> list[fx.Answer]:
        """Gives the core several events about jobs, all at once: one commit serves them all.

        Args:
            makes: each builds an event from the token that its answer will carry.

        Raises:
            KestrelError: the core's first refusal; the others were done nevertheless.
            StoreFull: nothing can be stored now; nothing was done.
        """
        found = await self._answers(makes)
        refusals = [answer for answer in found if answer.error is not None]
        if refusals:
            raise _error(refusals[0], done=len(found) - len(refusals))
        return found

    async def each_answer_to(
        self, makes: Collection[Callable[[str], ev.Event]]
    ) -> list[fx.Answer | KestrelError]:
        """Gives the core several events at once; returns each answer or refusal in its place."""
        try:
            found = await self._answers(makes)
        except StoreFull as error:  # nothing was done
            return [error] * len(makes)
        return [answer if answer.error is None else _error(answer, done=0) for answer in found]

    async def _answers(self, makes: Iterable[Callable[[str], ev.Event]]) -> list[fx.Answer]:
        self._service.must_store()
        futures = [self._hand_over(make) for make in makes]
        return [await future for future in futures]

    def _hand_over(self, make: Callable[[str], ev.Event]) -> asyncio.Future[fx.Answer]:
        token = str(next(self._tokens))
        event = make(token)
        future: asyncio.Future[fx.Answer] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        self._service.handle(event)
        return future

    def _on_answer(self, answer: fx.Answer) -> None:
        future = self._waiting.pop(answer.request, None)
        if future is not None and not future.done():
            future.set_result(answer)


def _error(refusal: fx.Answer, done: int) -> KestrelError:
    """A refusal, as users see it.

    Args:
        done: how many other jobs it was done for.
    """
    kind = BY_CODE.get(refusal.error or "", KestrelError)
    cause = f"it was done for {plural(done, 'other job')}" if done else refusal.cause or None
    return kind(refusal.message, cause=cause, hint=refusal.hint or None)
