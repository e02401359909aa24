"""Has handlers told of events: each has a line of its own, so a slow one delays only itself."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence

from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.plural import plural
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.manager.events.member_log import MemberEvents
from kestrelctl.manager.handlers.handler_ways import HandlerFailed, HandlerWay
from kestrelctl.manager.service import Service
from kestrelctl.membership.handler_definition import HandlerDefinition
from kestrelctl.membership.handler_words import ToldEvent, told_event
from kestrelctl.membership.membership_event import MembershipEvent

log = logging.getLogger(__name__)

#: So many events wait for one handler; of more the oldest are dropped.
MOST_WAITING = 10_000
#: What is told together waits so long for others that happen together.
GATHER_SECONDS = 5.0
#: The pauses before what was not done is tried again, and how often it is.
AGAIN_SECONDS = 5.0
LONGEST_AGAIN_SECONDS = 900.0
MOST_TRIES = 20


class HandlerLine:
    """One handler and what waits for it.

    Attributes:
        done, failed: how often it was told, and could not be.
        dropped: events that it was never told.
    """

    def __init__(self, name: str, way: HandlerWay) -> None:
        self._name = name
        self._way = way
        self._waiting: deque[ToldEvent] = deque()
        self._woken = asyncio.Event()
        self.done = self.failed = self.dropped = 0

    def put(self, told: ToldEvent) -> None:
        """Has it told."""
        if len(self._waiting) >= MOST_WAITING:
            self._drop(1, "too much waits for it")
            self._waiting.popleft()
        self._waiting.append(told)
        self._woken.set()

    async def run(self) -> None:
        """Tells it for ever."""
        while True:
            while not self._waiting:
                self._woken.clear()
                await self._woken.wait()
            if self._way.together > 1:
                await asyncio.sleep(GATHER_SECONDS)
            together = min(self._way.together, len(self._waiting))
            await self._tell([self._waiting.popleft() for _ in range(together)])

    async def _tell(self, told: Sequence[ToldEvent]) -> None:
        for tries in range(MOST_TRIES):
            try:
                await self._way.tell(told)
            except HandlerFailed as failure:
                self.failed += 1
                log.warning("handler %s: %s", self._name, failure)
                if not failure.again:
                    self._drop(len(told), str(failure))
                    return
                await asyncio.sleep(doubled_seconds(AGAIN_SECONDS, tries, LONGEST_AGAIN_SECONDS))
            except Exception:  # a slip here must not end the handler
                self.failed += 1
                log.exception("handler %s failed", self._name)
                self._drop(len(told), "the manager failed at it")
                return
            else:
                self.done += 1
                return
        self._drop(len(told), f"it was tried {MOST_TRIES} times")

    def _drop(self, events: int, why: str) -> None:
        self.dropped += events
        log.warning("handler %s is not told of %s: %s", self._name, plural(events, "event"), why)


class HandlerDesk:
    """All handlers of a pool.

    Args:
        ways: what each handler does, by its name.
    """

    def __init__(
        self,
        service: Service,
        handlers: Sequence[HandlerDefinition],
        ways: Mapping[str, HandlerWay],
    ) -> None:
        self._pool = service.domain
        self._handlers = [each for each in handlers if each.name in ways]
        self.lines = {each.name: HandlerLine(each.name, ways[each.name]) for each in self._handlers}
        service.listen(MemberEvents, self._on_events)

    async def run(self) -> None:
        """Tells all of them for ever."""
        async with asyncio.TaskGroup() as group:
            for line in self.lines.values():
                group.create_task(line.run())

    def _on_events(self, found: MemberEvents) -> None:
        for event, member in zip(found.events, found.members, strict=True):
            self._on_event(event, member)

    def _on_event(self, event: MembershipEvent, member: WorkerAd | None) -> None:
        for handler in self._handlers:
            if handler.takes(event):
                told = told_event(event, member, pool=self._pool, handler=handler.name)
                self.lines[handler.name].put(told)
