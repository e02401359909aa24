"""The attributes that matter to a match: those that an expression in force refers to.

Workers that differ in others are of one class, jobs that differ in others have one shape, so a
match is evaluated once for many. An attribute that is only ever compared with texts matters only
as far as these texts go: all other values count as one. For a worker's property, all numbers
between two that it is compared with count as one, too.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.rules import checked
from kestrelctl.core.classad.syntax import Node
from kestrelctl.core.model.worker.matching_ads import IDENTITIES, Attributes, Value, is_of_property

#: A text, in lower case, or a number.
Constant: TypeAlias = str | int | float
#: Name of an attribute in lower case -> constants that it is compared with, numbers only of a
#: property; None if more than that is done with it.
Interest: TypeAlias = dict[str, frozenset[Constant] | None]
#: The facts of an ad that matter: names in lower case, the kind of each value, the value.
Facts: TypeAlias = tuple[tuple[str, str, Value | tuple[Value, ...]], ...]

#: Stands for a text that nobody asks about. No text in an expression can be this: one with a
#: backslash makes its attribute matter altogether, and none has a line feed of its own.
ANOTHER = "another\n"
_EQUALITIES = ("==", "!=", "=?=", "=!=", "is", "isnt")
_ORDERS = ("<", "<=", ">", ">=")
_MEMBERSHIP = ("member", "identicalmember")
#: Beyond this HTCondor's library confuses whole numbers with each other.
_EXACT = 1 << 53
_NUMBER = re.compile(r"-?([0-9]+|[0-9]*\.[0-9]+)([eE][+-]?[0-9]+)?")
#: HTCondor's library compares numbers with these as with 1 and 0.
_TRUTHS = {"true": 1, "false": 0}


class Interests(msgspec.Struct, frozen=True):
    """The attributes of each side that an expression asks for."""

    mine: Interest
    others: Interest


@lru_cache(maxsize=4096)
def interests(text: str) -> Interests:
    """Finds what an expression that the pool takes asks of each side. Empty text asks nothing.

    Raises:
        BadExpression: it is none; or it does with an identity what would make each worker a class.
    """
    mine: Interest = {}
    others: Interest = {}
    if not text:
        return Interests(mine, others)
    for node, constants in _asked(checked(text), text):
        if node.scope == "parent":
            raise BadExpression("there is no PARENT; there are MY and TARGET", node.start)
        name = text[node.start : node.end]
        if is_of_property(node.name):
            if constants is None:
                why = (
                    f"{name} changes all the time, so it can only be compared with a number, a "
                    "text or true: by < <= > >= == != or member()"
                )
                raise BadExpression(why, node.start)
        elif constants is not None and not all(map(_is_text, constants)):
            constants = None
        if constants is None and node.name in IDENTITIES:
            why = f"{name} can only be compared with texts: by == != =?= =!= or member()"
            raise BadExpression(why, node.start)
        if node.scope != "target":
            _add(mine, node.name, constants)
        if node.scope != "my":
            _add(others, node.name, constants)
    return Interests(mine, others)


def problem_with_expression(text: str) -> BadExpression | None:
    """Says what is wrong with the expression of a job or a worker; None if all is well."""
    try:
        interests(text)
    except BadExpression as mistake:
        return mistake
    return None


def _is_text(constant: Constant) -> bool:
    return isinstance(constant, str)


def _asked(root: Node, text: str) -> Iterator[tuple[Node, frozenset[Constant] | None]]:
    """Yields each attribute in it, with the constants that it is compared with if that is all."""
    left: list[tuple[Node, frozenset[Constant] | None]] = [(root, None)]
    while left:
        node, constants = left.pop()
        if node.kind == "attribute":
            yield node, constants
            continue
        parts: list[frozenset[Constant] | None] = [None] * len(node.parts)
        if node.kind == "group":
            parts = [constants]
        elif node.kind in (*_EQUALITIES, *_ORDERS):
            first, second = node.parts
            parts = [_constants_in(second, text), _constants_in(first, text)]
            if node.kind in _ORDERS:  # Only the language knows which texts come before one.
                parts = [
                    None if part is None or any(map(_is_text, part)) else part for part in parts
                ]
        elif node.kind == "call" and node.name in _MEMBERSHIP and len(node.parts) == 2:
            parts[0] = _constants_in(node.parts[1], text)
        elif node.kind == "call" and node.name == "isundefined":
            parts = [frozenset()] * len(node.parts)
        left += reversed(list(zip(node.parts, parts, strict=True)))


def _constants_in(node: Node, text: str) -> frozenset[Constant] | None:
    """The texts and numbers that a constant stands for; None if it is something else."""
    if node.kind == "group":
        return _constants_in(node.parts[0], text)
    if node.kind == "list":
        found: frozenset[Constant] = frozenset()
        for part in node.parts:
            more = _constants_in(part, text)
            if part.kind == "list" or more is None:
                return None
            found |= more
        return found
    written = "".join(text[node.start : node.end].split())
    if _NUMBER.fullmatch(written):
        number = float(written)
        if abs(number) >= _EXACT:
            return None
        return frozenset({int(number) if number.is_integer() else number})
    written = text[node.start : node.end]
    if node.kind != "value" or "\\" in written:
        return None
    if written.startswith('"'):
        return frozenset({written[1:-1].lower()})
    if node.name in _TRUTHS:
        return frozenset({_TRUTHS[node.name]})
    return frozenset() if node.name == "undefined" else None


def _add(interest: Interest, name: str, constants: frozenset[Constant] | None) -> None:
    known = interest.get(name, frozenset())
    interest[name] = None if known is None or constants is None else known | constants


def interests_of(text: str) -> Interests:
    """Finds the same; a stored expression that was taken under other rules asks nothing."""
    try:
        return interests(text)
    except BadExpression:
        return Interests({}, {})


class Significance:
    """The attributes that the expressions in force ask for in the ads of one side.

    Args:
        always: names that every ad has.

    Attributes:
        known: names, in lower case, that an ad may have: asking for others changes nothing yet.
    """

    def __init__(self, always: Iterable[str]) -> None:
        self._always = frozenset(name.lower() for name in always)
        self.known = set(self._always)
        self._asked: dict[str, set[Constant] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def learn(self, interest: Interest) -> bool:
        """Takes in what one more expression asks.

        Returns:
            Whether ads may differ now that did not before.
        """
        new = False
        for name, constants in interest.items():
            if name not in self._asked:
                self._asked[name] = None if constants is None else set(constants)
                new = new or name in self.known
                continue
            known = self._asked[name]
            if known is None or (constants is not None and constants <= known):
                continue
            if constants is None:
                self._asked[name] = None
            else:
                known |= constants
            new = new or name in self.known
        return new

    def covers(self, interest: Interest) -> bool:
        """Whether `of` tells all that an interest asks of the attributes that ads may have."""
        for name, constants in interest.items():
            if name not in self.known:
                continue
            if name not in self._asked:
                return False
            asked = self._asked[name]
            if asked is not None and (constants is None or not constants <= asked):
                return False
        return True

    def asks(self, names: Iterable[str]) -> bool:
        """Whether any of these, in lower case, matters."""
        return any(name in self._asked for name in names)

    def forget(self) -> None:
        """Begins anew: nothing is asked."""
        self._asked.clear()
        self.known = set(self._always)

    def of(self, attributes: Attributes) -> Facts:
        """Returns the facts of an ad that matter."""
        found: list[tuple[str, str, Value | tuple[Value, ...]]] = []
        for name, value in attributes.items():
            lower = name.lower()
            if lower not in self._asked:
                continue
            constants = self._asked[lower]
            if isinstance(value, str):
                if constants is not None and value.lower() not in constants:
                    value = ANOTHER
            elif constants is not None and is_of_property(lower):
                value = _one_like(value, constants)
            found.append(_fact(lower, value))
        return tuple(sorted(found))


def _one_like(value: Value | Sequence[Value], constants: set[Constant]) -> Value | Sequence[Value]:
    """The number of the same type that stands for all on the same side of each of the constants.

    That is the next one above the constant below it; without one below, the next one under the
    least.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= _EXACT:
        return value
    marks = sorted(each for each in constants if not isinstance(each, str))
    if value in marks:
        return value
    if not marks:
        return type(value)(0)
    place = bisect_left(marks, value)
    if isinstance(value, int):
        return math.floor(marks[place - 1]) + 1 if place else math.ceil(marks[0]) - 1
    if place:
        return math.nextafter(marks[place - 1], math.inf)
    return math.nextafter(marks[0], -math.inf)


def _fact(lower: str, value: Value | Sequence[Value]) -> tuple[str, str, Value | tuple[Value, ...]]:
    if isinstance(value, bool | int | float | str):
        return lower, type(value).__name__, value
    return lower, "list", tuple(value)


def all_facts(attributes: Attributes) -> Facts:
    """All that an ad says, whether it matters to anybody or not."""
    return tuple(sorted(_fact(name.lower(), value) for name, value in attributes.items()))


def attributes_of(facts: Facts) -> Attributes:
    """The attributes that such facts are of, as `in_lower_case` has them."""
    return {name: value for name, _, value in facts}
