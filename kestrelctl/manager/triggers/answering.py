"""Serves what users ask about triggers."""

from __future__ import annotations

from collections.abc import Container

from kestrelctl.core.triggers.definition import TriggerDefinition, check_names, read_triggers
from kestrelctl.core.triggers.expression import ExpressionError
from kestrelctl.errors import UsageError
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.triggers.service import TriggerService, WatchedTrigger
from kestrelctl.manager.views import first_that_fit
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.triggers import (
    EnableTrigger,
    FiredList,
    FiredView,
    ListFired,
    ListTriggers,
    TriggerList,
    TriggerTest,
    TriggerView,
    TryTrigger,
)

#: The most of the latest times that triggers fired that are shown.
MOST_SHOWN = 1_000


class TriggerRequests:
    """Lists, tests and enables triggers, and shows when they fired.

    Args:
        handlers, classes: the names of the pool's handlers and classes of environments.
    """

    def __init__(
        self, desk: TriggerService, handlers: Container[str], classes: Container[str]
    ) -> None:
        self._desk = desk
        self._handlers = handlers
        self._classes = classes

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            ListTriggers: self.list_triggers,
            ListFired: self.list_fired,
            TryTrigger: self.test,
            EnableTrigger: self.enable,
        }

    async def list_triggers(self, caller: Caller, request: ListTriggers) -> None:
        views = [_view(each) for each in self._desk.triggers.values()]
        caller.reply(TriggerList(id=request.id, triggers=views))

    async def list_fired(self, caller: Caller, request: ListFired) -> None:
        found = await self._desk.log.latest(request.name, MOST_SHOWN)
        if not found and request.name:
            self._desk.trigger(request.name)
        latest_first = [
            FiredView(
                at=each.at,
                trigger=each.trigger,
                actions=list(each.actions),
                problems=list(each.problems),
            )
            for each in reversed(found)
        ]
        caller.reply(FiredList(id=request.id, fired=first_that_fit(latest_first)[::-1]))

    async def enable(self, caller: Caller, request: EnableTrigger) -> None:
        self._desk.enable(request.name, enabled=request.enabled)
        caller.reply(an.Changed(id=request.id, what=[request.name]))

    async def test(self, caller: Caller, request: TryTrigger) -> None:
        definition = self._definition(request)
        history = self._desk.history
        is_true, actions, moments, problem = False, list[str](), list[float](), ""
        try:
            views = self._desk.watch.look().views()
            is_true = bool(definition.expression.evaluate(views))
            actions = [str(each) for each in definition.actions.of(views)]
            moments = await self._desk.would_have_fired(definition)
        except ExpressionError as error:
            problem = str(error)
        caller.reply(
            TriggerTest(
                id=request.id,
                is_true=is_true,
                actions=actions,
                problem=problem,
                would_have_fired=moments,
                recorded=len(history),
                recorded_since=history.since,
            )
        )

    def _definition(self, request: TryTrigger) -> TriggerDefinition:
        if not request.text:
            return self._desk.trigger(request.name).definition
        found = [each for each in read_triggers(request.text, "text") if each.name == request.name]
        if len(found) != 1:
            raise UsageError(f"the text defines no trigger {request.name[:80]}")
        check_names(found[0], self._handlers, self._classes)
        return found[0]


def _view(found: WatchedTrigger) -> TriggerView:
    definition, course = found.definition, found.course
    return TriggerView(
        name=definition.name,
        expr=definition.expression.text,
        cmd=definition.actions.text,
        tick_seconds=definition.tick_seconds,
        on_update_check=definition.on_update,
        for_seconds=definition.for_seconds,
        cooldown_seconds=definition.cooldown_seconds,
        enabled=found.enabled,
        true_since=course.true_since,
        fired_at=course.fired_at,
        times=course.times,
        problem=found.problem,
    )
