"""What an expression of one side comes to beside the other side: asked once, and remembered.

It depends on nothing but the values of the attributes that it refers to. Sides that agree in these
get one answer, of whatever classes and shapes they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias, cast

from kestrelctl.core.classad.evaluation import NOTHING, Ad, Answer, Attribute, Expression
from kestrelctl.core.classad.syntax import Node, parse, references
from kestrelctl.core.model.matching_ads import Attributes, resolved

#: So many answers are remembered in all: what a few clauses come to beside 10,000 kinds of workers.
MOST_ANSWERS = 100_000
#: Of so many texts it is remembered how they are read.
MOST_TEXTS = 2_048

#: Of each attribute that is asked: whether it is one's own, the kind of its value, the value.
_Found: TypeAlias = tuple[bool | type | Attribute | None, ...]


class Side:
    """One of the two ads.

    Attributes:
        attributes: by name in lower case; a list is a tuple.
    """

    __slots__ = ("attributes",)

    def __init__(self, attributes: Attributes) -> None:
        self.attributes: dict[str, Attribute] = {
            name.lower(): tuple(value) if isinstance(value, list) else value
            for name, value in attributes.items()
        }


def comes_to(text: str, mine: Side, target: Side) -> Answer:
    """What an expression of one side comes to.

    Args:
        mine: the side whose expression it is.

    Raises:
        BadExpression: it is none; it was taken under other rules.
    """
    found: list[bool | type | Attribute | None] = []
    for name, scope in _asked(text):
        value = None if scope == "target" else mine.attributes.get(name)
        own = value is not None
        if not own and scope != "my":
            value = target.attributes.get(name)
        found += (own, type(value), value)
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
    """Where an expression refers to attributes.

    Raises:
        BadExpression: it is none.
    """
    return references(parse(text))


@lru_cache(maxsize=MOST_TEXTS)
def _asked(text: str) -> list[tuple[str, str]]:
    """The attributes that an expression refers to, each with its scope."""
    return list(dict.fromkeys((node.name, node.scope) for node in nodes_asked(text)))


@lru_cache(maxsize=MOST_TEXTS)
def _expression(text: str, mine: tuple[str, ...]) -> Expression:
    """An expression, ready to be evaluated where the own side has these attributes."""
    return Expression(resolved(text, mine))


@lru_cache(maxsize=MOST_ANSWERS)
def _answer(text: str, found: _Found) -> Answer:
    mine: dict[str, Attribute] = {}
    target: dict[str, Attribute] = {}
    for (name, _), own, value in zip(_asked(text), found[::3], found[2::3], strict=True):
        if value is not None:
            (mine if own else target)[name] = cast(Attribute, value)
    expression = _expression(text, tuple(mine))
    return expression.evaluate(Ad(mine) if mine else NOTHING, Ad(target) if target else NOTHING)
