"""The structure of a ClassAd expression: its clauses, and what it refers to and calls.

The library of the HTCondor project evaluates expressions; it does not say where a mistake is, and
only managers have it. This module answers what is asked of an expression before it is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.lexer import Word, words

#: The longest expression, in characters, and how deep it may nest.
MAX_CHARACTERS = 4_000
MAX_DEPTH = 50
#: The most signs that may apply to each other, as in `A || B || C`: 400 are too many for HTCondor's
#: library.
MAX_SIGNS = 300

#: Words that are values, not names of attributes.
CONSTANTS = ("true", "false", "undefined", "error")
#: Ads that an attribute can be asked of.
SCOPES = ("my", "target", "parent")

#: Signs between two operands, those that bind least first. All are read from left to right.
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "=?=", "=!=", "is", "isnt"),
    ("<", "<=", ">", ">="),
    ("<<", ">>", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_LEVEL = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs}
_WORDS = ("is", "isnt")  # signs that look like names
_SIGNS = ("-", "+", "!", "~")  # before one operand
_CLOSING = {"(": ")", "{": "}", "[": "]"}


class Node(msgspec.Struct, frozen=True):
    """A part of an expression.

    Attributes:
        kind: `value`, `attribute` (`name` in `scope`), `call` (of the function `name`), `list`,
            `record`, `part` (of another value, by name or number), `group` (in parentheses), or an
            operator: its sign.
        start, end: where it is in the text, in characters.
        name: in lower case, as the language does not tell cases apart.
        scope: in lower case; empty if none was written.
    """

    kind: str
    start: int
    end: int
    parts: tuple[Node, ...] = ()
    name: str = ""
    scope: str = ""

    def walk(self) -> Iterator[Node]:
        """This part and all in it, in the order of the text."""
        left = [self]
        while left:
            node = left.pop()
            yield node
            left += reversed(node.parts)


def parse(text: str) -> Node:
    """The structure of an expression.

    Raises:
        BadExpression: it is none, or it is too long or nested too deeply.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadExpression(f"it has more than {MAX_CHARACTERS:,} characters", MAX_CHARACTERS)
    root = _Reader(words(text)).whole()
    left = [(root, 0)]
    while left:
        node, above = left.pop()
        if above > MAX_SIGNS:
            raise BadExpression(f"more than {MAX_SIGNS} signs follow each other", node.start)
        left += [(part, above + 1) for part in node.parts]
    return root


def clauses(node: Node) -> list[Node]:
    """The clauses of an expression, which must all be true: the operands of its outermost `&&`."""
    found: list[Node] = []
    left = [node]
    while left:
        part = left.pop()
        if part.kind == "&&" or (part.kind == "group" and part.parts[0].kind in ("&&", "group")):
            left += reversed(part.parts)
        else:
            found.append(part)
    return found


def references(node: Node) -> list[Node]:
    """The attributes that it refers to, in the order of the text."""
    return [part for part in node.walk() if part.kind == "attribute"]


def calls(node: Node) -> list[Node]:
    """The functions that it calls, in the order of the text."""
    return [part for part in node.walk() if part.kind == "call"]


class _Reader:
    """Reads words from left to right, by the precedence of the signs between them."""

    def __init__(self, words: list[Word]) -> None:
        self._words = words
        self._at = 0
        self._depth = 0

    @property
    def _next(self) -> Word:
        return self._words[self._at]

    def _take(self) -> Word:
        word = self._words[self._at]
        self._at += 1
        return word

    def _skip(self, sign: str) -> bool:
        if self._next.kind == "sign" and self._next.text == sign:
            self._at += 1
            return True
        return False

    def _close(self, opened: Word) -> Word:
        closing = _CLOSING[opened.text]
        word = self._next
        if not self._skip(closing):
            raise self._unexpected(f"{closing!r} for the {opened.text!r} before")
        return word

    def _unexpected(self, wanted: str) -> BadExpression:
        word = self._next
        found = "the end" if word.kind == "end" else repr(word.text[:40])
        return BadExpression(f"{wanted} is expected, not {found}", word.start)

    def whole(self) -> Node:
        node = self._expression()
        if self._next.kind != "end":
            raise self._unexpected("an operator")
        return node

    def _expression(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadExpression(f"it nests deeper than {MAX_DEPTH}", self._next.start)
        node = self._operands(0)
        if self._skip("?"):
            chosen = self._expression()
            if not self._skip(":"):
                raise self._unexpected("':' of the '?' before")
            other = self._expression()
            node = Node("?", node.start, other.end, (node, chosen, other))
        self._depth -= 1
        return node

    def _operands(self, level: int) -> Node:
        """Reads operands, and signs between them that bind at least as much as those of a level."""
        left = self._signed()
        while _LEVEL.get(sign := self._sign(), -1) >= level:
            self._take()
            right = self._operands(_LEVEL[sign] + 1)
            left = Node(sign, left.start, right.end, (left, right))
        return left

    def _sign(self) -> str:
        word = self._next
        if word.kind == "sign":
            return word.text
        lower = word.text.lower()
        return lower if word.kind == "name" and lower in _WORDS else ""

    def _signed(self) -> Node:
        signs: list[Word] = []
        while self._next.kind == "sign" and self._next.text in _SIGNS:
            signs.append(self._take())
        node = self._first_defined()
        for sign in reversed(signs):
            node = Node(sign.text, sign.start, node.end, (node,))
        return node

    def _first_defined(self) -> Node:
        """Reads operands of `?:`, which binds more than every other sign, and from right to left.

        Source: `parsePostfixExpression` of HTCondor's classad/source.cpp.
        """
        parts = [self._selected(self._primary())]
        while self._skip("?:"):
            parts.append(self._selected(self._negative_number() or self._primary()))
        node = parts.pop()
        for tested in reversed(parts):
            node = Node("?:", tested.start, node.end, (tested, node))
        return node

    def _negative_number(self) -> Node | None:
        """Reads a number with its minus, behind `?:`; returns None if no sign stands there.

        HTCondor's library reads no other sign there: a minus that the number follows at once is the
        number's own.

        Raises:
            BadExpression: another one stands there.
        """
        word = self._next
        if word.kind != "sign" or word.text not in _SIGNS:
            return None
        number = self._words[self._at + 1]
        if word.text == "-" and number.kind == "number" and number.start == word.end:
            self._at += 2
            return Node("value", word.start, number.end)
        why = f"the {word.text!r} after '?:' needs parentheses: ?: ({word.text}X)"
        raise BadExpression(why, word.start)

    def _selected(self, node: Node) -> Node:
        """Reads what selects a part behind a value; returns the part, or the value itself."""
        while True:
            opened = self._next
            if self._skip("."):
                word = self._next
                name = _name(word)
                if word.kind not in ("name", "quoted") or (
                    word.kind == "name" and name in (*CONSTANTS, *_WORDS)
                ):
                    raise self._unexpected("the name of an attribute")
                self._take()
                if node.kind == "attribute" and not node.scope and node.name in SCOPES:
                    node = Node("attribute", node.start, word.end, name=name, scope=node.name)
                else:
                    node = Node("part", node.start, word.end, (node,), name=name)
            elif self._skip("["):
                place = self._expression()
                node = Node("part", node.start, self._close(opened).end, (node, place))
            else:
                return node

    def _primary(self) -> Node:
        word = self._next
        if word.kind in ("number", "string"):
            self._take()
            return Node("value", word.start, word.end)
        if word.kind in ("name", "quoted"):
            return self._named()
        if word.kind == "sign" and word.text == "(":
            self._take()
            inside = self._expression()
            return Node("group", word.start, self._close(word).end, (inside,))
        if word.kind == "sign" and word.text == "{":
            self._take()
            parts = self._listed("}")
            return Node("list", word.start, self._close(word).end, parts)
        if word.kind == "sign" and word.text == "[":
            return self._record()
        raise self._unexpected("a value")

    def _named(self) -> Node:
        word = self._take()
        name = _name(word)
        if word.kind == "name" and name in _WORDS:
            self._at -= 1
            raise self._unexpected("a value")
        if word.kind == "name" and name in CONSTANTS:
            return Node("value", word.start, word.end, name=name)
        opened = self._next
        if word.kind == "name" and self._skip("("):
            parts = self._listed(")")
            return Node("call", word.start, self._close(opened).end, parts, name=name)
        return Node("attribute", word.start, word.end, name=name)

    def _listed(self, closing: str) -> tuple[Node, ...]:
        parts: list[Node] = []
        if self._next.kind == "sign" and self._next.text == closing:
            return ()
        parts.append(self._expression())
        while self._skip(","):
            parts.append(self._expression())
        return tuple(parts)

    def _record(self) -> Node:
        opened = self._take()
        parts: list[Node] = []
        while self._next.kind in ("name", "quoted"):
            self._take()
            if not self._skip("="):
                raise self._unexpected("'='")
            parts.append(self._expression())
            if not self._skip(";"):
                break
        return Node("record", opened.start, self._close(opened).end, tuple(parts))


def _name(word: Word) -> str:
    return (word.text[1:-1] if word.kind == "quoted" else word.text).lower()
