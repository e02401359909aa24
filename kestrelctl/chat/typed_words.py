"""Words of a message that somebody typed, perhaps on a phone.

They are parsed as a shell does (`shlex`), after what the keyboards of phones make of quotes and
dashes was taken back: `“a b”` is `"a b"`, and a word that begins with `—` begins with `--`.
"""

from __future__ import annotations

import re
import shlex

from kestrelctl.errors import UsageError

#: A message is read character by character; a job that needs more is submitted from elsewhere.
MOST_CHARACTERS = 10_000
#: What opens a quotation, and what closes it. In a word, the last one is an apostrophe.
_QUOTES = {"“": "”“", "„": "“”", "‘": "’‘", "‚": "‘’"}  # noqa: RUF001
_BARE_CLOSERS = "”’"  # noqa: RUF001
_DASHES = "—–"  # noqa: RUF001
#: A word that a shell would not give to the command.
_OF_A_SHELL = re.compile(r"\|\|?|&&?|;|\d?>>?&?\d?|\d?<<?|[12]?>&[12]|&>>?")
_RANGE_DASH = re.compile(r"(?<=\d)[—–](?=\d)")  # noqa: RUF001


def split(text: str) -> list[str]:
    """The words of a message.

    Raises:
        UsageError: it is too long, or a quotation is left open.
    """
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"a message has at most {MOST_CHARACTERS:,} characters, not {len(text):,}",
            hint="a long job can be submitted from the command line: `kestrelctl submit`",
        )
    try:
        words = shlex.split(_plain(text))
    except ValueError:
        raise UsageError(
            "a quote is left open, or a \\ stands at the end",
            hint="close it; to mean the character itself, write \\' or \\\" or \\\\",
        ) from None
    end = words.index("--") if "--" in words else len(words)
    return [_RANGE_DASH.sub("-", word) for word in words[:end]] + words[end:]


def shell_word(text: str) -> str | None:
    """The first word, outside of quotes, that only means something to a shell; None without one."""
    word = ""
    quote = ""
    quoted = escaped = False
    for c in f"{_plain(text)} ":
        if escaped:
            escaped = False
        elif quote:
            if c == "\\" and quote == '"':
                escaped = True
            elif c == quote:
                quote = ""
        elif c == "\\":
            escaped = quoted = True
        elif c in "'\"":
            quote, quoted = c, True
        elif c.isspace():
            if not quoted and _OF_A_SHELL.fullmatch(word):
                return word
            word, quoted = "", False
        else:
            word += c
    return None


def _plain(text: str) -> str:
    """The text with the quotes, dashes and spaces that a shell knows."""
    found: list[str] = []
    closers = quote = ""
    inside: list[str] = []
    escaped = False
    for c in text:
        before = found[-1][-1:] if found else " "
        if closers:
            if c in closers:
                found.append(shlex.quote("".join(inside)))
                closers = ""
            else:
                inside.append(c)
        elif escaped:
            escaped = False
            found.append(c)
        elif c == "\\" and quote != "'":
            escaped = True
            found.append(c)
        elif quote:
            quote = "" if c == quote else quote
            found.append(c)
        elif c in "'\"":
            quote = c
            found.append(c)
        elif c in _QUOTES:
            closers, inside = _QUOTES[c], []
        elif c == "’" and before.isalnum():  # noqa: RUF001
            found.append(c)
        elif c in _BARE_CLOSERS:  # some keyboards open with it, too
            closers, inside = c, []
        elif c in _DASHES and before.isspace():
            found.append("--")
        else:
            found.append(" " if c.isspace() else c)
    if closers:
        found.append('"')  # left open: `shlex` says so
    return "".join(found)
