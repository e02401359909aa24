"""Words of a message that somebody typed, perhaps on a phone.

A message holds a command a line. Each is parsed as a shell does (`shlex`), after what chat programs
put around a line was left out, and what keyboards make of quotes and dashes was taken back:
`“a b”` is `"a b"`, and a word that begins with `—` begins with `--`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from kestrelctl.chat.curly_quotes import CURLY, quotation, unclear
from kestrelctl.errors import UsageError

#: A message is read character by character; a job that needs more is submitted from elsewhere.
MOST_CHARACTERS = 10_000
#: The most commands in one message.
MOST_COMMANDS = 20
#: Characters that cannot be seen and mean nothing: zero-width space, byte order mark, word joiner
#: and its like, soft hyphen, and marks of direction.
_INVISIBLE = "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"
#: Joiners and variation selectors shape the letters and emoji beside them; others have no shapes.
_SHAPING = "\u034f\u200c\u200d\ufe00-\ufe0f"
_SHAPED = f"[^\\x00-\\x7f\\s{_INVISIBLE}{_SHAPING}]"
_UNSEEN = f"(?:[{_INVISIBLE}]|(?<!{_SHAPED})[{_SHAPING}](?!{_SHAPED}))"
_UNSEEN_CHARACTER = re.compile(_UNSEEN)
_DASHES = "—–"  # noqa: RUF001
#: Characters that end a line: slides and phones have more of these than the plain one.
_LINE_ENDS = "\n\r\v\f\x85\u2028\u2029"
#: What may stand before a command: blanks, and lines that begin or end a block of code.
_PASSED = rf"(?:\s|{_UNSEEN})++|```[\w-]*[ \t\r]*(?:\n|\Z)"
_BEFORE = re.compile(f"(?:{_PASSED})*+")
#: What may stand before the first command: also quoted lines, to which the message replies
#: (XEP-0393, 5.1.3).
_BEFORE_ALL = re.compile(rf"(?:{_PASSED}|>[^\n]*(?:\n|\Z))*+")
#: A whole line as code (XEP-0393, 5.2).
_CODE = re.compile(r"(`+)([^`]+)\1")
#: A word that a shell would not give to the command.
_OF_A_SHELL = re.compile(r"\|\|?|&&?|;|\d?>>?&?\d?|\d?<<?|[12]?>&[12]|&>>?")
_RANGE_DASH = re.compile(r"(?<=\d)[—–](?=\d)")  # noqa: RUF001


def commands(text: str) -> list[str]:
    """The commands of a message, in the quotes, dashes and spaces that a shell knows.

    A command ends with its line, unless a quotation is open there or a `\\` stands at the end.

    Raises:
        UsageError: the message is too long, or holds too many; quotes are not clear; or what may be
        a quotation, or for a shell, stands behind a command.
    """
    _check_length(text)
    found: list[str] = []
    at = where_it_begins(text)
    while at < len(text):
        if text[at] == ">":
            raise UsageError(
                "a line that begins with > stands behind a command, and nothing was done",
                hint="quote before you write; a > for a shell belongs into quotes: sh -c 'a > b'",
            )
        plain, at = _plain(text, at, to_line_end=True)
        code = _CODE.fullmatch(plain)
        found.append(code[2] if code else plain)
        at = _end_of(_BEFORE, text, at)
    if len(found) > MOST_COMMANDS:
        raise UsageError(
            f"a message has at most {MOST_COMMANDS} lines, not {len(found)}",
            hint="send the others in another message, or use the command line; nothing was done",
        )
    return found


def where_it_begins(text: str) -> int:
    """The place at which a message begins: behind what is quoted, blank, or not to be seen."""
    return _end_of(_BEFORE_ALL, text, 0)


def is_unseen(text: str, at: int) -> bool:
    """Whether a character can neither be seen nor shapes one that is beside it."""
    return _UNSEEN_CHARACTER.match(text, at) is not None


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def split(text: str) -> list[str]:
    """The words of a command.

    Raises:
        UsageError: it is too long, a quotation is left open, or quotes are not clear.
    """
    _check_length(text)
    try:
        words = shlex.split(_plain(text)[0])
    except ValueError:
        raise UsageError(
            "a quote is left open, or a \\ stands at the end",
            hint="close it; to mean the character itself, write \\' or \\\" or \\\\",
        ) from None
    end = words.index("--") if "--" in words else len(words)
    return [_RANGE_DASH.sub("-", word) for word in words[:end]] + words[end:]


def value(text: str) -> str:
    """A number, a size or the like from a field of a form, without what keyboards made of it."""
    return _RANGE_DASH.sub("-", _UNSEEN_CHARACTER.sub("", text)).strip()


def without_end_mark(words: Sequence[str]) -> list[str]:
    """The same words without the full stop, question mark or the like behind the last one."""
    found = list(words)
    if found:
        found[-1] = found[-1].rstrip("?!.,:;…")
    return found if not found or found[-1] else found[:-1]


def check_no_shell(text: str) -> None:
    """Refuses a command with a word outside of quotes that only means something to a shell.

    Raises:
        UsageError: it has one.
    """
    word = shell_word(text)
    if word is not None:
        raise UsageError(
            f"{word} is for a shell, and the command runs without one",
            hint="give it one: sh -c 'a | b'; quotes make it a plain character",
        )


def shell_word(text: str) -> str | None:
    """The first word, outside of quotes, that only means something to a shell; None without one."""
    word = ""
    quote = ""
    quoted = escaped = False
    for c in f"{_plain(text)[0]} ":
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


def _check_length(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise UsageError(
            f"a message has at most {MOST_CHARACTERS:,} characters, not {len(text):,}",
            hint="a long job can be submitted from the command line: `kestrelctl submit`",
        )


def _plain(text: str, at: int = 0, *, to_line_end: bool = False) -> tuple[str, int]:
    """The text with the quotes, dashes and spaces that a shell knows, and the place behind it.

    Args:
        at: where to begin.
        to_line_end: whether to stop at the end of the first line, outside of quotes.
    """
    found: list[str] = []
    quote = ""
    has_single = False  # a quotation in single curly quotes was there
    while at < len(text):
        c = text[at]
        before = found[-1][-1:] if found else " "
        at += 1
        if c == "\\" and quote != "'":
            if text[at : at + 1] != "\n":
                found.append(text[at - 1 : at + 1])
            at += 1  # a shell goes on in the next line, too
        elif quote or c in "'\"":
            quote = "" if c == quote else quote or c
            found.append(c)
        elif c == "’" and before.isalnum():  # noqa: RUF001
            if has_single and not text[at : at + 1].isalnum():
                raise unclear()
            found.append(c)
        elif c in CURLY:
            quoted = quotation(text, at - 1)
            if quoted is None:
                return "".join([*found, '"']), len(text)  # left open: `shlex` says so
            inside, at = quoted
            has_single |= c in "‘’‚"  # noqa: RUF001
            found.append(shlex.quote(inside))
        elif c in _DASHES and before.isspace():
            found.append("--")
        elif c in _LINE_ENDS and to_line_end:
            break
        elif not is_unseen(text, at - 1):
            found.append(" " if c.isspace() else c)
    return "".join(found).strip(), at
