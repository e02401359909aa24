"""Quotations in the curly quotes that phones and slides make of straight ones.

A quotation is one word, as in straight quotes. Quotes that stand in pairs inside of it were typed
straight, too, and become so again: `“sh -c ‘ls “a b”’”` holds `sh -c 'ls "a b"'`. An apostrophe
stays. Where it cannot be told which quotes belong together, nothing is guessed.
"""  # noqa: RUF002

from __future__ import annotations

from kestrelctl.errors import UsageError

_DOUBLE, _SINGLE = "“”„", "‘’‚"  # noqa: RUF001
CURLY = _DOUBLE + _SINGLE
#: These open a quotation wherever a word begins; the other two do where none of their kind is open.
_OPENERS = "“„‘‚"  # noqa: RUF001
#: A word begins behind these, behind a space, and behind an opener.
_BEFORE_WORDS = "([{<=:,;'\""
#: The quotes that close a quotation, by the quote that opened it.
_CLOSERS = {"“": "”“", "„": "”“", "”": "”", "‘": "’‘", "‚": "’‘", "’": "’"}  # noqa: RUF001
#: The most quotations inside of each other.
_MOST_DEEP = 8


def quotation(text: str, at: int, double: str = '"') -> tuple[str, int] | None:
    """The content of a quotation, and the place behind it; None if it is left open.

    Args:
        at: the place of its first quote.
        double: what a double quote inside of it is written as.

    Raises:
        UsageError: quotes in it may belong together in more than one way, or nest too deeply.
    """
    #: (the quote that opened it, its place in `inside`), the innermost last
    opened = [(text[at], 0)]
    knows_escapes = text[at] in _DOUBLE
    inside: list[str] = []
    i = at + 1
    while i < len(text):
        c, before, after = text[i], text[i - 1], text[i + 1 : i + 2]
        if c == "\\" and knows_escapes and after:
            inside.append(double if after in f'"{_DOUBLE}' else c + after)
            i += 2
            continue
        if c == '"':
            inside.append(double)
        elif c not in CURLY or _is_apostrophe(text, i):
            inside.append(c)
        elif _opens(c, before, opened):
            if len(opened) == _MOST_DEEP:
                raise unclear()
            opened.append((c, len(inside)))
            inside.append(c)
        elif (closed := _closed(c, opened)) is None:
            inside.append(c)
        else:
            if before.isspace() and after.isalnum():
                raise unclear()
            opener, place = opened[closed]
            del opened[closed:]  # those inside of it that are still open were single characters
            if not opened:
                return "".join(inside), i + 1
            inside[place] = double if opener in _DOUBLE else "'"
            inside.append(inside[place])
        i += 1
    return None


def unclear() -> UsageError:
    """The refusal of quotes that may belong together in more than one way."""
    return UsageError(
        "it is not clear which of these curly quotes belong together",
        hint="write straight quotes: ' or \"",
    )


def _is_apostrophe(text: str, i: int) -> bool:
    """Whether a character is no quote but a part of a word."""
    return text[i] in "‘’" and text[i - 1].isalnum() and text[i + 1 : i + 2].isalnum()  # noqa: RUF001


def _opens(c: str, before: str, opened: list[tuple[str, int]]) -> bool:
    """Whether a quote begins a quotation inside of those that are open."""
    if before == "„" and len(opened) == 1 and c in _CLOSERS[before]:
        return False  # an empty one
    if c not in _OPENERS:
        return False
    begins_word = before.isspace() or before in _BEFORE_WORDS or before in _OPENERS
    return begins_word or _innermost(c, opened) is None


def _closed(c: str, opened: list[tuple[str, int]]) -> int | None:
    """Finds the open quotation that a quote closes; None if it closes none."""
    found = _innermost(c, opened)
    return found if found is not None and c in _CLOSERS[opened[found][0]] else None


def _innermost(c: str, opened: list[tuple[str, int]]) -> int | None:
    """The innermost open quotation of the same kind, double or single; None if there is none."""
    kind = _DOUBLE if c in _DOUBLE else _SINGLE
    return next((n for n in reversed(range(len(opened))) if opened[n][0] in kind), None)
