"""Triggers, from the text of an INI file."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from kestrelctl.core.ini_sections import ini_sections
from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.core.properties.reading import read_printed
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
        on_update: it is evaluated as well when a property that it speaks of has a new value.
        for_seconds: so long the expression must have been true; 0 for at once.
        cooldown_seconds: after it has fired it does not for so long.
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
    sections = ini_sections(text, source, MOST_TRIGGERS)
    return [_Section(source, name, fields).read() for name, fields in sections.items()]


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


class _Section:
    def __init__(self, source: str, name: str, fields: Mapping[str, str]) -> None:
        self._source = source
        self._name = name
        self._fields = fields

    def read(self) -> TriggerDefinition:
        if not is_name(self._name):
            raise self._wrong("this cannot be a trigger's name", NAME_RULE)
        for key in self._fields:
            if key not in _KEYS:
                raise self._wrong(f"there is no {key[:80]!r}", f"there are {', '.join(_KEYS)}")
        for key in ("expr", "cmd", "ticks"):
            if not self._fields.get(key, "").strip():
                raise self._wrong(f"{key} is missing", f"write {key} = …")
        try:
            expression = TriggerExpression(self._fields["expr"], NAMES)
        except ExpressionError as error:
            raise self._wrong(f"expr: {error}", "docs/triggers.md says what there is") from None
        try:
            actions = TriggerActions(self._fields["cmd"])
        except ExpressionError as error:
            raise self._wrong(f"cmd: {error}", "docs/triggers.md says what there is") from None
        return TriggerDefinition(
            name=self._name,
            expression=expression,
            actions=actions,
            tick_seconds=self._seconds("ticks", 1.0),
            on_update=self._is_on("on_update_check"),
            for_seconds=self._seconds("for", 0.0),
            cooldown_seconds=self._seconds("cooldown", 0.0),
        )

    def _seconds(self, key: str, least: float) -> float:
        text = self._fields.get(key, "0" if not least else "").strip()
        value = read_printed(text.encode(), "float", 0.0).value
        if not isinstance(value, float) or not least <= value <= LONGEST_SECONDS:
            raise self._wrong(
                f"{key} is {text[:80]!r}", f"seconds, from {least:g} to {LONGEST_SECONDS:,.0f}"
            )
        return value

    def _is_on(self, key: str) -> bool:
        text = self._fields.get(key, "no").strip()
        value = read_printed(text.encode(), "bool", 0.0).value
        if not isinstance(value, bool):
            raise self._wrong(f"{key} is {text[:80]!r}", "yes or no")
        return value

    def _wrong(self, cause: str, hint: str) -> UsageError:
        return UsageError(f"{self._source}: [{self._name[:80]}] is wrong", cause=cause, hint=hint)
