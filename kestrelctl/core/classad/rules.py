"""The expressions that the pool takes: those that come to the same every time, in little time.

A (shape, class) pair is matched once and remembered, so an expression may depend on nothing but the
two ads. The manager also evaluates somebody else's text here: what makes texts grow, reads files,
or hides which attributes it refers to is left out.
"""

from __future__ import annotations

import re

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.syntax import MAX_CHARACTERS, SCOPES, Node, calls, parse

#: Functions of HTCondor's library that may be called, as the manual spells them.
FUNCTIONS = [
    "allCompare",
    "anyCompare",
    "avg",
    "bool",
    "ceiling",
    "floor",
    "identicalMember",
    "ifThenElse",
    "int",
    "isBoolean",
    "isError",
    "isInteger",
    "isList",
    "isReal",
    "isString",
    "isUndefined",
    "join",
    "max",
    "member",
    "min",
    "pow",
    "quantize",
    "real",
    "regexp",
    "regexpMember",
    "round",
    "size",
    "strcat",
    "strcmp",
    "stricmp",
    "string",
    "stringListsIntersect",
    "substr",
    "sum",
    "toLower",
    "toUpper",
    "version_in_range",
    "versioncmp",
    "versionEQ",
    "versionGE",
    "versionGT",
    "versionLE",
    "versionLT",
]
#: Functions that come to something else each time they are called.
IMPURE = [
    "time",
    "currentTime",
    "daytime",
    "timezoneOffset",
    "absTime",
    "formatTime",
    "splitTime",
    "interval",
    "random",
]

_KNOWN = frozenset(name.lower() for name in FUNCTIONS)
_IMPURE = frozenset(name.lower() for name in IMPURE)
#: The first argument of these is a regular expression.
_WITH_PATTERN = ("regexp", "regexpmember")
#: The most repetitions in a pattern, and in one that begins with `^`, and the most searches in an
#: expression: so a search takes at most the square of the length of what is searched.
MAX_REPETITIONS = 1
MAX_ANCHORED_REPETITIONS = 2
MAX_SEARCHES = 5
_REPETITION = re.compile(r"[*+?{]")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]")
_ESCAPED = re.compile(r"\\\\.")
_LARGEST = (1 << 63) - 1


def checked(text: str) -> Node:
    """The structure of an expression that the pool takes.

    Raises:
        BadExpression: it is none, it calls what must not be called, or asks what is never there.
    """
    root = parse(text)
    for node in root.walk():
        if node.kind == "record":
            raise BadExpression("records have no place here", node.start)
        written = text[node.start : node.end].removeprefix("-")
        if node.kind == "value" and written.isdigit() and int(written) > _LARGEST:
            raise BadExpression("the number is beyond 2^63", node.start)
    for node in root.walk():
        _check_reference(node, text)
    found = calls(root)
    for call in found:
        _check_call(call, text)
    searches = [call for call in found if call.name in _WITH_PATTERN]
    if len(searches) > MAX_SEARCHES:
        why = f"an expression has at most {MAX_SEARCHES} regular expressions"
        raise BadExpression(why, searches[MAX_SEARCHES].start)
    return root


def _check_reference(node: Node, text: str) -> None:
    """Refuses what would be undefined for ever: no attribute holds an ad, and no side is one."""
    if node.kind == "part" and node.name:
        whole = node.parts[0]
        what = text[whole.start : whole.end][:40]
        raise BadExpression(f"{what} has no parts: write X, MY.X or TARGET.X", whole.end)
    if node.kind == "attribute" and node.name in SCOPES:
        why = f"{node.name.upper()} is no attribute: write X, MY.X or TARGET.X"
        raise BadExpression(why, node.start)


def _check_call(call: Node, text: str) -> None:
    name = text[call.start : call.end].partition("(")[0].strip()
    if call.name in _IMPURE:
        why = f"{name}() is not the same each time, and a match is evaluated once for many tasks"
        raise BadExpression(why, call.start)
    if call.name not in _KNOWN:
        why = f"there is no function {name[:40]}(); there are {', '.join(FUNCTIONS)}"
        raise BadExpression(why, call.start)
    if call.name in _WITH_PATTERN:
        if len(call.parts) < 2 or call.parts[1].kind != "attribute":
            raise BadExpression(f"{name}() searches an attribute: {name}(TEXT, NAME)", call.start)
        pattern = call.parts[0]
        written = text[pattern.start : pattern.end]
        if not written.startswith('"'):
            raise BadExpression("the regular expression must be a text, in quotes", pattern.start)
        _check_pattern(written[1:-1], pattern.start)


def _check_pattern(pattern: str, place: int) -> None:
    """Refuses a pattern that takes a time that grows fast with the text searched."""
    plain = _CLASS.sub("c", _ESCAPED.sub("e", pattern))
    anchored = plain.startswith("^") and "|" not in plain
    most = MAX_ANCHORED_REPETITIONS if anchored else MAX_REPETITIONS
    if len(_REPETITION.findall(plain)) > most or ")" in plain:
        why = (
            f"a regular expression has at most {MAX_REPETITIONS} repetition, after a ^ "
            f"{MAX_ANCHORED_REPETITIONS}, and no groups"
        )
        raise BadExpression(why, place)


def shown(text: str, mistake: BadExpression) -> str:
    """The mistake, and below it the expression with a caret where it is: three lines."""
    line = text[:MAX_CHARACTERS].replace("\n", " ").replace("\t", " ")
    return f"{mistake}\n{pointed_at(line, mistake.position)}"


def pointed_at(line: str, position: int) -> str:
    """The part of a line around a mistake, and a line with a caret below that."""
    first = max(0, min(position - 50, len(line) - 70))
    return f"{line[first : first + 100]}\n{' ' * (position - first)}^"
