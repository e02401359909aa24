"""Makes the output of tasks safe for a terminal."""

from __future__ import annotations

import codecs
import re

#: Colours and the like (ECMA-48, 8.3.117: Select Graphic Rendition).
_RENDITION = r"\x1b\[[0-9;:]*m"
_CONTROL = re.compile(
    rf"({_RENDITION})|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
_AS_IT_WAS = "\x1b[0m"


class TerminalText:
    """Turns bytes into text that shows colours and lines, and tells the terminal nothing else.

    A task can write characters that rename a window, fill its clipboard, rewrite lines above, or
    make the terminal answer as if somebody had typed. Such characters are shown as escapes:
    `\\x1b`.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._colored = False

    def add(self, data: bytes) -> str:
        """Returns the text of the next piece. A character that is cut off waits for its rest."""
        return _CONTROL.sub(self._shown, self._decoder.decode(data))

    def end(self) -> str:
        """Returns what is left, and resets the terminal's colours if the text has changed them."""
        left = self._decoder.decode(b"", final=True)
        return left + _AS_IT_WAS if self._colored else left

    def _shown(self, found: re.Match[str]) -> str:
        if found[1]:
            self._colored = True
            return found[1]
        return found[0].encode("unicode_escape").decode()
