"""Notes when triggers fired, and what they had done: durable, as long as events of members are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from kestrelctl.core.triggers.fired import FiredDropped, TriggerFired
from kestrelctl.errors import KestrelError
from kestrelctl.manager.service import Service

log = logging.getLogger(__name__)

#: The most times that are kept, the latest ones.
MOST_FIRED = 10_000
#: The number of times after which it is looked again whether there are more.
TIDY_EACH = 1_000
#: The most characters that are kept of each action.
MOST_CHARACTERS = 300


class TriggerLog:
    """Notes when triggers fire.

    Args:
        kept_seconds: how long that is kept.
    """

    def __init__(self, service: Service, kept_seconds: float) -> None:
        self._service = service
        self._kept_seconds = kept_seconds
        latest = service.store.fired(limit=1)
        self._last = latest[0].number if latest else 0
        self._tidying: asyncio.Task[None] | None = None

    def add(self, trigger: str, at: float, actions: Iterable[str], problems: Iterable[str]) -> None:
        """Notes that a trigger has fired.

        Called after its actions have begun, so that they are in this commit or an earlier one:
        whatever dies in between, it fires once more rather than not at all.

        Args:
            at: seconds since the epoch.
        """
        self._last += 1
        fired = TriggerFired(
            number=self._last,
            at=at,
            trigger=trigger,
            actions=tuple(each[:MOST_CHARACTERS] for each in actions),
            problems=tuple(each[:MOST_CHARACTERS] for each in problems),
        )
        self._service.commits.write([fired])
        if self._last % TIDY_EACH == 0:
            self._tidying = asyncio.get_running_loop().create_task(self.tidy())

    async def latest(self, trigger: str, limit: int) -> list[TriggerFired]:
        """The latest times that triggers fired, in order.

        Args:
            trigger: the one that fired; empty for all.
        """
        return await self._service.store.ask(lambda read: read.fired(trigger=trigger, limit=limit))

    async def tidy(self) -> None:
        """Has what is too old or too much deleted, some at a time."""
        try:
            first = await self._service.store.ask(lambda read: read.first_fired())
        except KestrelError as error:  # such as a database that is away for a while
            log.warning("it is not tidied when triggers fired: %s (%s)", error, error.cause)
            return
        if first is None or first.number == self._last or self._service.store_error:
            return
        before, up_to = self._service.now() - self._kept_seconds, self._last - MOST_FIRED
        if first.at < before or first.number <= up_to:
            self._service.commits.write([FiredDropped(before, up_to)])
