"""Which attributes matter to a match: those that an expression in force refers to.

Workers that differ in others are of one class, jobs that differ in others have one shape, so a
match is evaluated once for many. An attribute that is only ever compared with texts matters only
as far as these texts go: all other values are as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import msgspec

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.rules import checked
from kestrelctl.core.classad.syntax import Node
from kestrelctl.core.model.matching_ads import IDENTITIES, Attributes, Value

#: Name of an attribute in lower case -> texts that it is compared with, in lower case; None if more
#: than that is done with it.
Interest: TypeAlias = dict[str, frozenset[str] | None]
#: What an ad says to the matter: names in lower case, the kind of each value, the value.
Facts: TypeAlias = tuple[tuple[str, str, Value | tuple[Value, ...]], ...]

#: In place of a text that nobody asks about. No text in an expression can be this: one with a
#: backslash makes its attribute matter altogether, and none has a line feed of its own.
ANOTHER = "another\n"
_COMPARISONS = ("==", "!=", "=?=", "=!=", "is", "isnt")
_MEMBERSHIP = ("member", "identicalmember")


class Interests(msgspec.Struct, frozen=True):
    """What an expression asks of each side."""

    mine: Interest
    others: Interest


@lru_cache(maxsize=4096)
def interests(text: str) -> Interests:
    """What an expression that the pool takes asks of each side. Empty text asks nothing.

    Raises:
        BadExpression: it is none; or it does with an identity what would make each worker a class.
    """
    mine: Interest = {}
    others: Interest = {}
    if not text:
        return Interests(mine, others)
    for node, texts in _asked(checked(text), text, None):
        if node.scope == "parent":
            raise BadExpression("there is no PARENT; there are MY and TARGET", node.start)
        if texts is None and node.name in IDENTITIES:
            name = text[node.start : node.end]
            why = f"{name} can only be compared with texts: by == != =?= =!= or member()"
            raise BadExpression(why, node.start)
        if node.scope != "target":
            _add(mine, node.name, texts)
        if node.scope != "my":
            _add(others, node.name, texts)
    return Interests(mine, others)


def problem_with_expression(text: str) -> BadExpression | None:
    """What is wrong with the expression of a job or a worker; None if all is well."""
    try:
        interests(text)
    except BadExpression as mistake:
        return mistake
    return None


def _asked(
    node: Node, text: str, texts: frozenset[str] | None
) -> Iterator[tuple[Node, frozenset[str] | None]]:
    """Each attribute in it, with the texts that it is compared with if that is all.

    Args:
        texts: what the node as a whole is compared with.
    """
    if node.kind == "attribute":
        yield node, texts
        return
    parts: list[frozenset[str] | None] = [None] * len(node.parts)
    if node.kind == "group":
        parts = [texts]
    elif node.kind in _COMPARISONS:
        left, right = node.parts
        parts = [_texts_in(right, text), _texts_in(left, text)]
    elif node.kind == "call" and node.name in _MEMBERSHIP and len(node.parts) == 2:
        parts[0] = _texts_in(node.parts[1], text)
    for part, found in zip(node.parts, parts, strict=True):
        yield from _asked(part, text, found)


def _texts_in(node: Node, text: str) -> frozenset[str] | None:
    """The texts that a constant stands for; None if it is something else."""
    if node.kind == "group":
        return _texts_in(node.parts[0], text)
    if node.kind == "list":
        found: frozenset[str] = frozenset()
        for part in node.parts:
            more = _texts_in(part, text) if part.kind == "value" else None
            if more is None:
                return None
            found |= more
        return found
    written = text[node.start : node.end]
    if node.kind != "value" or "\\" in written:
        return None
    if written.startswith('"'):
        return frozenset({written[1:-1].lower()})
    return frozenset() if node.name == "undefined" else None


def _add(interest: Interest, name: str, texts: frozenset[str] | None) -> None:
    known = interest.get(name, frozenset())
    interest[name] = None if known is None or texts is None else known | texts


def interests_of(text: str) -> Interests:
    """The same; one that is stored and was taken under other rules asks nothing."""
    try:
        return interests(text)
    except BadExpression:
        return Interests({}, {})


class Significance:
    """What the expressions in force ask of the ads of one side.

    Args:
        always: names that every ad has.

    Attributes:
        known: names, in lower case, that an ad may have: to ask for others changes nothing yet.
    """

    def __init__(self, always: Iterable[str]) -> None:
        self._always = frozenset(name.lower() for name in always)
        self.known = set(self._always)
        self._asked: dict[str, set[str] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._asked)

    def learn(self, interest: Interest) -> bool:
        """Takes in what one more expression asks.

        Returns:
            Whether ads may differ now that did not before.
        """
        new = False
        for name, texts in interest.items():
            if name not in self._asked:
                self._asked[name] = None if texts is None else set(texts)
                new = new or name in self.known
                continue
            known = self._asked[name]
            if known is None or (texts is not None and texts <= known):
                continue
            if texts is None:
                self._asked[name] = None
            else:
                known |= texts
            new = new or name in self.known
        return new

    def covers(self, interest: Interest) -> bool:
        """Whether `of` tells all that this asks of what ads may have."""
        for name, texts in interest.items():
            if name not in self.known:
                continue
            if name not in self._asked:
                return False
            asked = self._asked[name]
            if asked is not None and (texts is None or not texts <= asked):
                return False
        return True

    def forget(self) -> None:
        """Begins anew: nothing is asked."""
        self._asked.clear()
        self.known = set(self._always)

    def of(self, attributes: Attributes) -> Facts:
        """What of an ad matters."""
        found: list[tuple[str, str, Value | tuple[Value, ...]]] = []
        for name, value in attributes.items():
            lower = name.lower()
            if lower not in self._asked:
                continue
            texts = self._asked[lower]
            if isinstance(value, str) and texts is not None and value.lower() not in texts:
                value = ANOTHER
            found.append(_fact(lower, value))
        return tuple(sorted(found))


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
