"""The words of a ClassAd expression.

Source: the HTCondor manual, "ClassAds" (man page classads).
"""

from __future__ import annotations

import re

import msgspec

from kestrelctl.core.classad.bad_expression import BadExpression

_QUOTED = ("string", "quoted")
#: An octal escape that comes to nothing, behind any other escapes.
_NUL = re.compile(r"^.(?:[^\\]|\\(?!0).|\\0{1,2}[1-7])*?()\\(?:000|0{1,2}(?![0-7]))")
#: Spaces of ASCII only: HTCondor's library reads no others.
_SPACE = re.compile(r"[ \t\n\r\f\v]*")
_TOKEN = re.compile(
    r"""
      (?P<number> (?: 0 | [1-9]\d* | (?: \d* \. \d+ ) (?: [eE][+-]?\d+ )? | \d+ [eE][+-]?\d+ )
                  (?! [A-Za-z0-9_.] ) )
    | (?P<string> "(?: [^"\\\n] | \\. )*" )
    | (?P<quoted> '(?: [^'\\\n] | \\. )+' )
    | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
    | (?P<sign> =\?= | =!= | >>> | \?: | [|]{2} | && | == | != | <= | >= | << | >>
              | [-+*/%!~<>&|^?:.,;=(){}\[\]] )
    """,
    re.VERBOSE,
)


class Word(msgspec.Struct, frozen=True, gc=False):
    """A word of an expression.

    Attributes:
        kind: `number`, `string`, `quoted` (an attribute's name), `name`, `sign`, or `end`.
        start, end: where it is in the text, in characters.
    """

    kind: str
    text: str
    start: int
    end: int


def words(text: str) -> list[Word]:
    """The words of an expression, and one of kind `end` behind them.

    Raises:
        BadExpression: something in it is no word.
    """
    found: list[Word] = []
    place = _after_space(text, 0)
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise BadExpression(_what_is_wrong(text[place]), place)
        if match.lastgroup in _QUOTED:
            _check_quoted(match.group(), place)
        found.append(Word(match.lastgroup or "", match.group(), place, match.end()))
        place = _after_space(text, match.end())
    found.append(Word("end", "", place, place))
    return found


def _check_quoted(written: str, place: int) -> None:
    """Refuses a text with a NUL, where it ends for HTCondor's library, and a name that the library
    reads otherwise than it is looked up here.
    """
    nul = _NUL.search(written)
    end = nul.end(1) if nul is not None else written.find("\0")
    if end >= 0:
        raise BadExpression("a text holds no NUL character", place + end)
    if written.startswith("'") and ("\\" in written or not written.isascii()):
        raise BadExpression(f"no attribute has the name {written[:40]}", place)


def _after_space(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place


def _what_is_wrong(character: str) -> str:
    if character in "\"'":
        return f"the {character} is never closed"
    if character.isdigit() or character == ".":
        return "no number is written so"
    if character.isspace():
        return f"{character!r} is a space that the language does not have: write a plain one"
    return f"{character!r} is no part of the language"
