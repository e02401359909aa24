"""Evaluates triggers at their ticks, and does what they want."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from kestrelctl.core.model.wording import plural
from kestrelctl.core.triggers.definition import TriggerDefinition
from kestrelctl.core.triggers.expression import ExpressionError
from kestrelctl.core.triggers.pool_views import NAMES
from kestrelctl.core.triggers.state import TriggerState
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.manager.service import Service
from kestrelctl.manager.triggers.actions import TriggerDeeds
from kestrelctl.manager.triggers.log import TriggerLog
from kestrelctl.manager.triggers.moments import MomentLog
from kestrelctl.manager.triggers.watch import PoolWatch
from kestrelctl.store.kept_text import KeptText

log = logging.getLogger(__name__)

#: Values that come in within this are looked at together.
COLLECT_SECONDS = 0.2
#: The time between two records of the pool, for a dry run.
RECORD_SECONDS = 60.0
#: The time between two looks whether there is something to record.
SOON_SECONDS = 1.0


class WatchedTrigger:
    """A trigger at work.

    Attributes:
        problem: why it could not be evaluated the last time; empty if it could.
    """

    def __init__(self, definition: TriggerDefinition, course: TriggerState) -> None:
        self.definition = definition
        self.course = course
        self.enabled = True
        self.problem = ""


class TriggerService:
    """All triggers of a pool.

    Args:
        kept: says which are not enabled.
        kept_seconds: how long it is kept when triggers fired.

    Attributes:
        log: when they fired.
        history: records of the pool.
    """

    def __init__(
        self,
        service: Service,
        watch: PoolWatch,
        deeds: TriggerDeeds,
        definitions: Sequence[TriggerDefinition],
        kept: KeptText,
        kept_seconds: float,
    ) -> None:
        self._service = service
        self.watch = watch
        self._deeds = deeds
        self._kept = kept
        self.log = TriggerLog(service, kept_seconds)
        courses = service.store.trigger_courses()
        self.triggers = {
            each.name: WatchedTrigger(each, TriggerState(each, *courses.get(each.name, ())))
            for each in definitions
        }
        self.history = MomentLog(service)
        self._new_values: set[str] = set()
        for name in self._disabled():
            if name in self.triggers:
                self.triggers[name].enabled = False

    async def run(self) -> None:
        """Looks at all triggers for ever."""
        if not self.triggers:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._record())
            for trigger in self.triggers.values():
                group.create_task(self._tick(trigger))

    def trigger(self, name: str) -> WatchedTrigger:
        """Returns the trigger of a name.

        Raises:
            NotFound: there is none of that name.
        """
        if name not in self.triggers:
            raise NotFound(f"there is no trigger {name[:80]}", hint="kestrelctl trigger list")
        return self.triggers[name]

    def enable(self, name: str, *, enabled: bool) -> None:
        """Enables a trigger, or disables it; that outlasts the manager.

        Raises:
            NotFound: there is none of that name.
            StoreFull: that cannot be kept, and so is not done.
        """
        trigger = self.trigger(name)
        off = {each for each, found in self.triggers.items() if not found.enabled} - {name}
        self._kept.write(msgspec.json.encode(sorted(off if enabled else off | {name})).decode())
        trigger.enabled = enabled
        trigger.course.true_since = None

    def on_values(self, names: frozenset[str]) -> None:
        """Notes that properties of these names have new values at a worker."""
        if not any(each.definition.on_update for each in self.triggers.values()):
            return
        if not self._new_values:
            asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._look_at_values)
        self._new_values |= names

    def look(self, trigger: WatchedTrigger) -> None:
        """Evaluates a trigger, and does what it wants if it fires."""
        if not trigger.enabled or not self._service.pool.has_heard:
            return
        definition = trigger.definition
        snapshot = self.watch.look(definition.expression.words)
        try:
            is_true = bool(definition.expression.evaluate(snapshot.views()))
            trigger.problem = ""
        except ExpressionError as error:
            if trigger.problem != str(error):
                log.warning("trigger %s: %s", definition.name, error)
            trigger.problem, is_true = str(error), False
        if trigger.course.fires(is_true, snapshot.at):
            self._fire(definition)

    def _fire(self, definition: TriggerDefinition) -> None:
        now = self._service.now()
        try:
            actions = definition.actions.of(self.watch.look(definition.actions.words).views())
        except ExpressionError as error:
            self.triggers[definition.name].problem = str(error)
            log.warning("trigger %s: %s", definition.name, error)
            self.log.add(definition.name, now, (), [str(error)])
            return
        log.info("trigger %s: %s", definition.name, "; ".join(map(str, actions)))
        problems = [self._deeds.do(definition.name, each) for each in actions]
        self.log.add(definition.name, now, map(str, actions), filter(None, problems))

    def _look_at_values(self) -> None:
        names, self._new_values = self._new_values, set()
        for trigger in self.triggers.values():
            definition = trigger.definition
            if definition.on_update and not names.isdisjoint(definition.expression.words):
                self._look_safely(trigger)

    def _look_safely(self, trigger: WatchedTrigger) -> None:
        try:
            self.look(trigger)
        except Exception:  # a slip here must not end the triggers
            log.exception("trigger %s failed", trigger.definition.name)
            trigger.problem = "the manager failed at it"

    async def _tick(self, trigger: WatchedTrigger) -> None:
        while True:
            await asyncio.sleep(trigger.definition.tick_seconds)
            self._look_safely(trigger)

    async def _record(self) -> None:
        while True:
            if not self._service.pool.has_heard:
                await asyncio.sleep(SOON_SECONDS)
                continue
            await self.log.tidy()
            self.history.add(self.watch.look(NAMES))
            await asyncio.sleep(RECORD_SECONDS)

    async def would_have_fired(self, definition: TriggerDefinition) -> list[float]:
        """Finds the recorded moments at which a trigger would have fired; seconds since the epoch.

        The pool goes on meanwhile.

        Raises:
            ExpressionError: at one of them it could not have been evaluated.
        """
        course, found = TriggerState(definition), list[float]()
        async for moment in self.history.moments():
            if course.fires(bool(definition.expression.evaluate(moment.views())), moment.at):
                found.append(moment.at)
            await asyncio.sleep(0)
        return found

    def _disabled(self) -> list[str]:
        try:
            return msgspec.json.decode(self._kept.read() or "[]", type=list[str])
        except (KestrelError, msgspec.DecodeError, UnicodeError) as error:
            log.error("what was disabled cannot be read, so %s enabled: %s", _all(self), error)
            return []


def _all(desk: TriggerService) -> str:
    return f"all of {plural(len(desk.triggers), 'trigger')} are"
