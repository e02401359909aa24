"""The actions of triggers: calls of named actions, whose arguments are expressions."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import msgspec

from kestrelctl.core.triggers.expression import (
    ExpressionError,
    check,
    evaluate,
    parsed,
    without_braces,
    words_of,
)
from kestrelctl.core.triggers.pool_views import NAMES, WatchedJob, WatchedWorker

MOST_ACTIONS = 20
#: The most texts that one argument may come to.
MOST_TEXTS = 1_000
MOST_TEXT_CHARACTERS = 1_024

#: Each action: how many arguments it takes at least and at most, and which names.
ACTIONS: dict[str, tuple[int, int, tuple[str, ...]]] = {
    "query": (0, 20, ("workers", "group")),
    "run_command": (1, 1, ()),  # the names are those of the command, besides `workers` and `group`
    "start_environment": (1, 1, ("host",)),
    "stop_environment": (1, 1, ()),
    "hold": (1, 1, ()),
    "release": (1, 1, ()),
    "drain": (1, 1, ()),
    "resume": (1, 1, ()),
    "notify": (2, 2, ()),
}
#: The name of an action in the system that these rules come from -> its name here.
_OLD_NAMES = {"sender.send_get_property": "query"}


class Action(msgspec.Struct, frozen=True):
    """An action to be carried out.

    Attributes:
        name: one of `ACTIONS`.
        given: each argument, as the texts that it came to.
        named: the same of arguments with a name.
    """

    name: str
    given: tuple[tuple[str, ...], ...] = ()
    named: dict[str, tuple[str, ...]] = {}

    def __str__(self) -> str:
        given = [_shown(each) for each in self.given]
        given += [f"{name}={_shown(each)}" for name, each in self.named.items()]
        return f"{self.name}({', '.join(given)})"


def _shown(texts: tuple[str, ...]) -> str:
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts[:10])}{', …' * (len(texts) > 10)}]"


class TriggerActions:
    """The actions of a trigger.

    Args:
        text: calls, with `;` between them, perhaps in braces.

    Attributes:
        words: all names, fields and texts that stand in it.

    Raises:
        ExpressionError: it is none, or calls an action that there is not.
    """

    def __init__(self, text: str) -> None:
        self.text = without_braces(text)
        tree = parsed(self.text, "exec")
        assert isinstance(tree, ast.Module)
        if not 0 < len(tree.body) <= MOST_ACTIONS:
            raise ExpressionError(f"cmd is 1 to {MOST_ACTIONS} actions, with ; between them")
        self._calls = [_call(each) for each in tree.body]
        self.words = frozenset(words_of(tree))

    def first_texts(self, *names: str) -> list[str]:
        """The first arguments of calls of these actions, where they are texts and not computed."""
        firsts = [call.args[0] for name, call in self._calls if name in names and call.args]
        return [
            first.value
            for first in firsts
            if isinstance(first, ast.Constant) and isinstance(first.value, str)
        ]

    def of(self, views: Mapping[str, object]) -> list[Action]:
        """Computes the actions that are to be carried out now.

        Raises:
            ExpressionError: an argument cannot be computed, or is no text.
        """
        return [
            Action(
                name,
                tuple(_texts(evaluate(each, views)) for each in call.args),
                {
                    keyword.arg: _texts(evaluate(keyword.value, views))
                    for keyword in call.keywords
                    if keyword.arg
                },
            )
            for name, call in self._calls
        ]


def _call(statement: ast.stmt) -> tuple[str, ast.Call]:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        raise ExpressionError('cmd is a call, such as drain("w1")')
    call = statement.value
    written = _dotted(call.func)
    name = _OLD_NAMES.get(written, written)
    if name not in ACTIONS:
        raise ExpressionError(f"there is no {written[:80]}(); there are {', '.join(ACTIONS)}")
    least, most, names = ACTIONS[name]
    if not least <= len(call.args) <= most:
        wanted = f"{least}" if least == most else f"{least} to {most}"
        raise ExpressionError(f"{name}() takes {wanted} arguments")
    for keyword in call.keywords:
        if keyword.arg is None or (name != "run_command" and keyword.arg not in names):
            raise ExpressionError(f"{name}() takes no {keyword.arg or '**'}")
    for part in (*call.args, *(keyword.value for keyword in call.keywords)):
        check(part, NAMES)
    return name, call


def _dotted(func: ast.expr) -> str:
    """A name with dots and calls, however many, as it is written; of anything else three dots."""
    parts: list[str] = []
    while isinstance(func, ast.Attribute | ast.Call):
        parts.append(f".{func.attr}" if isinstance(func, ast.Attribute) else "()")
        func = func.value if isinstance(func, ast.Attribute) else func.func
    parts.append(func.id if isinstance(func, ast.Name) else "…")
    return "".join(reversed(parts))


def _texts(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list | tuple) else [value]
    if len(values) > MOST_TEXTS:
        raise ExpressionError(f"an argument names more than {MOST_TEXTS:,}")
    return tuple(_text(each) for each in values)


def _text(value: object) -> str:
    if isinstance(value, WatchedWorker):
        return value.name
    if isinstance(value, WatchedJob):
        return str(value.id)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float) and len(str(value)) <= MOST_TEXT_CHARACTERS:
        return str(value)
    raise ExpressionError("an argument is a text, a number, a worker, a job, or a list of such")
