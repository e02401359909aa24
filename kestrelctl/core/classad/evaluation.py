"""Evaluates an expression beside an ad of each side, by the HTCondor project's own library.

Only managers have the library (`htcondor` on PyPI); nothing that runs elsewhere may import this.
Any exception of the library becomes a value here: it raises UnicodeDecodeError for a text that is
no UTF-8, and SystemError for a list with such a text, or for a number beyond 64 bits (25.14).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import classad2
import msgspec

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.syntax import parse


class Unknown(enum.Enum):
    """A result that is no value."""

    UNDEFINED = "undefined"  #: an attribute that it needs is not there
    ERROR = "error"  #: a wrong type, a division by zero, a function that does not exist


class Failure(msgspec.Struct, frozen=True):
    """A failure of the library to give a value, and why, in words."""

    words: str


Plain: TypeAlias = bool | int | float | str
#: The result of an expression; lists and records as text.
Answer: TypeAlias = Plain | Unknown | Failure
#: An attribute's value in an ad.
Attribute: TypeAlias = Plain | Sequence[Plain]

# Used in each evaluation: looking up members of an enumeration is slow, and `|` makes a new type.
_NUMBERS = (bool, int, float)
_PLAIN = (*_NUMBERS, str)
_UNDEFINED, _ERROR = classad2.Value.Undefined, classad2.Value.Error


class Ad:
    """Attributes and their values; names in any case."""

    __slots__ = ("_ad", "_failure")

    def __init__(self, attributes: Mapping[str, Attribute]) -> None:
        self._ad = classad2.ClassAd()
        self._failure: Failure | None = None
        try:
            for name, value in attributes.items():
                self._ad[name] = value if isinstance(value, _PLAIN) else list(value)
        except Exception as error:
            self._failure = _failure(error)


NOTHING = Ad({})


def is_true(answer: Answer) -> bool:
    """Whether an expression that comes to this holds: HTCondor takes numbers other than 0 for true,
    and no text.
    """
    return isinstance(answer, _NUMBERS) and bool(answer)


class Expression:
    """An expression that can be evaluated.

    Attributes:
        text: as it was written.
        syntax: its structure.

    Raises:
        BadExpression: it is none.
    """

    __slots__ = ("_tree", "syntax", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.syntax = parse(text)
        try:
            self._tree = classad2.ExprTree(text)
        except Exception as error:
            raise BadExpression(f"HTCondor's library does not read it: {error}", 0) from None

    def evaluate(self, my: Ad = NOTHING, target: Ad | None = NOTHING) -> Answer:
        """Computes the value of the expression.

        Args:
            my: the ad in which names without a scope, and those in `MY`, are looked up.
            target: the other side, `TARGET`. None if no name in the expression has a scope: that
                takes the library a twentieth of the time.
        """
        failure = my._failure or (None if target is None else target._failure)
        if failure is not None:
            return failure
        try:
            found = self._tree.eval(my._ad, None if target is None else target._ad)
            plain = found if isinstance(found, _PLAIN) else str(found)
        except Exception as error:
            return _failure(error)
        # Both are members of an enumeration of numbers: they would pass for 2 and 1.
        if found is _UNDEFINED:
            return Unknown.UNDEFINED
        if found is _ERROR:
            return Unknown.ERROR
        return plain


def _failure(error: Exception) -> Failure:
    if isinstance(error, UnicodeError):
        return Failure("it comes to a text that is no UTF-8")
    return Failure(f"HTCondor's library does not evaluate it: {error}")
