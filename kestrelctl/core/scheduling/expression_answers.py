"""Evaluates expressions of one side beside the other side, and remembers the answers.

An answer depends on nothing but the values of the attributes that the expression refers to. Sides
that agree in these get one answer, of whatever classes and shapes they are. The library is given
one ad with these values under names of their own: to look into two ads takes it 20 times as long.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias, cast

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Ad, Answer, Attribute, Expression, Failure
from kestrelctl.core.classad.syntax import Node, parse, references
from kestrelctl.core.model.worker.matching_ads import Attributes

#: The most answers that are remembered: enough for a few clauses beside 10,000 kinds of workers.
MOST_ANSWERS = 100_000
#: The most expressions that are remembered in parsed form.
MOST_TEXTS = 2_048

#: For each attribute that is asked: the type of its value, then the value; None if it has none.
_Found: TypeAlias = tuple[type | Attribute | None, ...]


class Side:
    """One of the two ads.

    Attributes:
        attributes: as `in_lower_case` has them.
    """

    __slots__ = ("attributes",)

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes


def comes_to(text: str, mine: Side, target: Side) -> Answer:
    """Evaluates an expression of one side.

    As in HTCondor's matches, a name without a scope is looked up in the side's own ad; if that has
    no such attribute, in the other side's.

    Args:
        mine: the side whose expression it is.

    Returns:
        Its value; a failure, too, if the text is no expression: other rules had accepted it.
    """
    found: list[type | Attribute | None] = []
    try:
        asked = _asked(text)
    except BadExpression as mistake:
        return Failure(str(mistake))
    for name, scope in asked:
        value = None if scope == "target" else mine.attributes.get(name)
        if value is None and scope != "my":
            value = target.attributes.get(name)
        found += (type(value), value)
    return _answer(text, tuple(found))


def names_asked(text: str, *, own: bool) -> list[str]:
    """The attributes that an expression may look up in one of the ads, in lower case.

    Args:
        own: in that of the side whose expression it is; else in the other.

    Raises:
        BadExpression: it is none.
    """
    not_there = "target" if own else "my"
    return list(dict.fromkeys(name for name, scope in _asked(text) if scope != not_there))


@lru_cache(maxsize=MOST_TEXTS)
def nodes_asked(text: str) -> list[Node]:
    """Returns the nodes of an expression that refer to attributes.

    Raises:
        BadExpression: it is none.
    """
    return references(parse(text))


@lru_cache(maxsize=MOST_TEXTS)
def _asked(text: str) -> list[tuple[str, str]]:
    """The attributes that an expression refers to, each with its scope."""
    return list(dict.fromkeys((node.name, node.scope) for node in nodes_asked(text)))


@lru_cache(maxsize=MOST_TEXTS)
def _expression(text: str) -> Expression:
    """An expression in which the attributes that are asked have other names: `_name` of each."""
    names = {asked: _name(place) for place, asked in enumerate(_asked(text))}
    for node in reversed(nodes_asked(text)):
        # Spaces around it: a name in quotes may stand next to a word, as in Site is'x'.
        text = f"{text[: node.start]} {names[node.name, node.scope]} {text[node.end :]}"
    return Expression(text)


def _name(place: int) -> str:
    return f"a{place}"


@lru_cache(maxsize=MOST_ANSWERS)
def _answer(text: str, found: _Found) -> Answer:
    values = {
        _name(place): cast(Attribute, value)
        for place, value in enumerate(found[1::2])
        if value is not None
    }
    try:
        expression = _expression(text)
    except BadExpression as mistake:
        return Failure(str(mistake))
    return expression.evaluate(Ad(values), None)
