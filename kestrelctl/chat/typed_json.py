"""JSON that somebody typed or pasted into a chat, perhaps on a phone.

Its strings may stand in curly quotes, and what cannot be seen between them is left out. A string in
straight quotes is taken as it is, whatever stands in it.
"""

from __future__ import annotations

import re

from kestrelctl.chat.curly_quotes import CURLY, quotation
from kestrelctl.chat.typed_words import MOST_CHARACTERS, is_unseen, where_it_begins
from kestrelctl.errors import UsageError

#: Text that needs no look: a string in straight quotes, which may be left open, and plain
#: characters between strings.
_AS_IT_IS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[ \t\r\n!#-~]++', re.DOTALL)
_CODE_ENDS = "```"


def is_json(text: str) -> bool:
    """Whether a message is JSON, and no words."""
    return text.startswith("{", where_it_begins(text))


def plain_json(text: str) -> str:
    """The JSON of a message, in straight quotes.

    In a message that is longer than words may be, no quote is changed.

    Raises:
        UsageError: it cannot be told which curly quotes belong together, or one is left open.
    """
    text = text[where_it_begins(text) :].rstrip().removesuffix(_CODE_ENDS)
    if text.isascii() or len(text) > MOST_CHARACTERS:
        return text
    found: list[str] = []
    at = 0
    while at < len(text):
        c = text[at]
        if passed := _AS_IT_IS.match(text, at):
            found.append(passed[0])
            at = passed.end()
        elif c in CURLY:
            quoted = quotation(text, at, double='\\"')
            if quoted is None:
                raise UsageError("a curly quote is left open", hint='write straight quotes: "')
            inside, at = quoted
            found.append(f'"{inside}"')
        else:
            at += 1
            if not is_unseen(text, at - 1):
                found.append(" " if c.isspace() else c)
    return "".join(found)
