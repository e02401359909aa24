"""Triggers, from the text of an INI file."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from kestrelctl.core.ini_sections import IniSection, ini_sections
from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.core.triggers.actions import TriggerActions
from kestrelctl.core.triggers.expression import ExpressionError, TriggerExpression
from kestrelctl.core.triggers.pool_views import NAMES
from kestrelctl.errors import UsageError

MOST_TRIGGERS = 100
LONGEST_SECONDS = 86_400.0
_KEYS = ("expr", "cmd", "ticks", "on_update_check", "for", "cooldown")


@dataclass(frozen=True, kw_only=True)
class TriggerDefinition:
    """A rule.

    Attributes:
        tick_seconds: from one evaluation to the next.
        on_update: whether it is also evaluated when a property that it speaks of has a new value.
        for_seconds: how long the expression must have been true; 0 for at once.
        cooldown_seconds: how long it does not fire again after it has fired.
    """

    name: str
    expression: TriggerExpression
    actions: TriggerActions
    tick_seconds: float
    on_update: bool = False
    for_seconds: float = 0.0
    cooldown_seconds: float = 0.0


def read_triggers(text: str, source: str) -> list[TriggerDefinition]:
    """The triggers that a file defines, a section each.

    Args:
        source: what the text is called in messages: the file.

    Raises:
        UsageError: it cannot be read; the message names the file and the section.
    """
    return [each.made(_trigger) for each in ini_sections(text, source, MOST_TRIGGERS)]


def check_names(
    trigger: TriggerDefinition, handlers: Container[str], classes: Container[str]
) -> None:
    """Passes if what a trigger names is defined.

    Args:
        handlers, classes: the names of the pool's handlers and classes of environments.

    Raises:
        UsageError: it names a handler or a class that there is not.
    """
    for handler in trigger.actions.first_texts("notify"):
        if handler not in handlers:
            raise _unknown(trigger, f"there is no handler {handler[:80]}", "--handlers")
    for cls in trigger.actions.first_texts("start_environment", "stop_environment"):
        if cls not in classes:
            raise _unknown(trigger, f"there is no environment {cls[:80]}", "--environments")


def _unknown(trigger: TriggerDefinition, cause: str, option: str) -> UsageError:
    return UsageError(
        f"the trigger {trigger.name} is wrong", cause=cause, hint=f"{option} FILE defines it"
    )


def _trigger(section: IniSection) -> TriggerDefinition:
    if not is_name(section.name):
        raise section.wrong("this cannot be a trigger's name", NAME_RULE)
    section.only(_KEYS)
    texts = {key: section.needed(key, f"write {key} = …") for key in ("expr", "cmd", "ticks")}
    try:
        expression = TriggerExpression(texts["expr"], NAMES)
    except ExpressionError as error:
        raise section.wrong(f"expr: {error}", "docs/triggers.md says what there is") from None
    try:
        actions = TriggerActions(texts["cmd"])
    except ExpressionError as error:
        raise section.wrong(f"cmd: {error}", "docs/triggers.md says what there is") from None
    return TriggerDefinition(
        name=section.name,
        expression=expression,
        actions=actions,
        tick_seconds=section.seconds("ticks", 1.0, LONGEST_SECONDS),
        on_update=section.is_on("on_update_check"),
        for_seconds=section.seconds("for", 0.0, LONGEST_SECONDS, 0.0),
        cooldown_seconds=section.seconds("cooldown", 0.0, LONGEST_SECONDS, 0.0),
    )
