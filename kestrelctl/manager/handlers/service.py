"""Has handlers told of events: each has a line of its own, so a slow one delays only itself.

What waits is in the store, in the commit that makes the event durable, and goes out of it when the
handler was told: whatever fails between the two, it is told, perhaps twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from kestrelctl.core.effects import Announcement
from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.handler_definition import HandlerDefinition
from kestrelctl.core.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.core.membership.handler_words import ToldEvent, told_event
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.errors import KestrelError
from kestrelctl.manager.handlers.channels import HandlerChannel, HandlerFailed
from kestrelctl.manager.service import Service

log = logging.getLogger(__name__)

#: The most events that wait for one handler; if there are more, the oldest are dropped.
MOST_WAITING = 10_000
#: Events that are told together wait so long for others that happen together.
GATHER_SECONDS = 5.0
#: They wait at least so long after the last ones: a worker that comes and goes fills no mailbox.
BETWEEN_SECONDS = 60.0
#: The pauses before what was not done is tried again, and the most tries.
AGAIN_SECONDS = 5.0
LONGEST_AGAIN_SECONDS = 900.0
MOST_TRIES = 20


class HandlersAwait(Announcement, frozen=True, kw_only=True):
    """Announces that what handlers are to be told is durable."""


class HandlerQueue:
    """One handler and what waits for it.

    Args:
        waiting: the first and the last place of the line that an earlier manager has left; None if
            it left nothing.

    Attributes:
        done, failed: how often it was told, and could not be.
        dropped: events that it was never told.
    """

    def __init__(
        self,
        service: Service,
        name: str,
        way: HandlerChannel,
        waiting: tuple[int, int] | None = None,
    ) -> None:
        self._service = service
        self._name = name
        self._way = way
        first, self._last = waiting or (1, 0)
        self._settled = first - 1
        self._woken = asyncio.Event()
        self.done = self.failed = self.dropped = 0

    def put(self, told: ToldEvent) -> None:
        """Has the handler told of an event, once that is durable."""
        self._last += 1
        self._service.commits.write([HandlerAwaits(self._name, self._last, told)])
        too_many = self._last - MOST_WAITING
        if too_many > self._settled:
            self._drop(too_many - self._settled, "too much waits for it")
            self._settle(too_many)

    def wake(self) -> None:
        """Wakes the queue, as something may wait."""
        self._woken.set()

    async def run(self) -> None:
        """Tells the handler of what waits, for ever."""
        loop = asyncio.get_running_loop()
        told_at = loop.time() - BETWEEN_SECONDS
        while True:
            self._woken.clear()
            if not await self._waiting(1):
                await self._woken.wait()
                continue
            if self._way.together > 1:
                rest_seconds = told_at + BETWEEN_SECONDS - loop.time()
                await asyncio.sleep(max(GATHER_SECONDS, rest_seconds))
            waiting = await self._waiting(self._way.together)
            if waiting:
                await self._tell([each.told for each in waiting])
                self._settle(waiting[-1].number)
                told_at = loop.time()

    async def _waiting(self, limit: int) -> list[HandlerAwaits]:
        while self._settled < self._last:
            after = self._settled
            try:
                return await self._service.store.ask(
                    lambda read, after=after: read.awaits(self._name, after=after, limit=limit)  # type: ignore[misc]
                )
            except KestrelError as error:  # such as a database that is away for a while
                log.warning("handler %s waits for the store: %s", self._name, error)
                await asyncio.sleep(AGAIN_SECONDS)
        return []

    def _settle(self, up_to: int) -> None:
        self._settled = max(self._settled, up_to)
        self._service.commits.write([HandlerSettled(self._name, self._settled)])

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


class HandlerService:
    """All handlers of a pool.

    Events that wait for a handler that is not among them are forgotten: if it comes back later, it
    begins anew.

    Args:
        ways: the channel of each handler, by its name.
    """

    def __init__(
        self,
        service: Service,
        handlers: Sequence[HandlerDefinition],
        ways: Mapping[str, HandlerChannel],
    ) -> None:
        self._service = service
        self._handlers = [each for each in handlers if each.name in ways]
        waiting = service.store.awaited()
        self.lines = {
            each.name: HandlerQueue(service, each.name, ways[each.name], waiting.get(each.name))
            for each in self._handlers
        }
        for name, (_, last) in waiting.items():
            if name not in self.lines:
                service.commits.write([HandlerSettled(name, last)])
        #: Whether it hears when what it has put is durable, and has put more since.
        self._announced = self._has_more = False
        service.member_log.on_event = self._on_event
        service.listen(HandlersAwait, self._on_durable)

    async def run(self) -> None:
        """Tells all handlers for ever."""
        async with asyncio.TaskGroup() as group:
            for line in self.lines.values():
                group.create_task(line.run())

    def put(self, told: ToldEvent) -> None:
        """Has the handler told that `told` names.

        Raises:
            KeyError: there is none of that name.
        """
        self.lines[told.handler].put(told)
        self._has_more = True
        self._announce()

    def _announce(self) -> None:
        if self._has_more and not self._announced:
            self._announced, self._has_more = True, False
            self._service.commits.after(HandlersAwait())

    def _on_event(self, event: MembershipEvent, member: WorkerAd | None) -> None:
        for handler in self._handlers:
            if handler.takes(event):
                shown = self._service.wall.told(event)
                self.put(told_event(shown, member, pool=self._service.domain, handler=handler.name))

    def _on_durable(self, _: HandlersAwait) -> None:
        self._announced = False
        for line in self.lines.values():
            line.wake()
        self._announce()
