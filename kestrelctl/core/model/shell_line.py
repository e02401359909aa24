"""Commands that are lines for the shell, as the first Kestrel had them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

SHELL = ("/bin/sh", "-c")

_WITH_NUMBER = ' "$KESTREL_TASK_ID"'


def numbered(line: str) -> tuple[str, ...]:
    """A shell line with the id of the task as its last argument; nothing for an empty line."""
    line = line.strip()
    return (*SHELL, line + _WITH_NUMBER) if line else ()


def as_line(words: Sequence[str], task_id: int) -> str:
    """The line for the shell that runs a command; the inverse of `numbered`."""
    if len(words) == 3 and tuple(words[:2]) == SHELL and words[2].endswith(_WITH_NUMBER):
        return f"{words[2].removesuffix(_WITH_NUMBER)} {task_id}"
    return shlex.join(words)
