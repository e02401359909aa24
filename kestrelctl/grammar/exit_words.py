"""Ends of tasks, and signals that end them, in words: `0,3`, `64-78`, `75,SIGKILL`; `INT`."""

from __future__ import annotations

import re
import signal

from kestrelctl.core.model.job.exits import Exits
from kestrelctl.errors import UsageError

_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")


def parse_exits(text: object) -> Exits:
    """Ranges of exit codes, and signals, in `0,3`, `64-78` or `75,SIGKILL`; empty for none.

    Raises:
        UsageError: a word is neither.
    """
    if isinstance(text, tuple):  # as it was parsed already
        return text
    return tuple(map(_one, str(text).replace(",", " ").split()))


def _one(word: str) -> tuple[int, int]:
    match = _RANGE.fullmatch(word)
    if match is not None:
        low = int(match[1])
        return low, int(match[2] or low)
    number = getattr(signal.Signals, word.upper(), None)
    if number is None or not word.upper().startswith("SIG"):
        raise UsageError(f"not an exit code: {word[:40]!r}", hint="write 0,3 or 64-78 or SIGKILL")
    return -number, -number


def parse_stop_signal(text: object) -> str:
    """The name of a signal that asks a program to end, without `SIG`; empty for the default.

    Raises:
        UsageError: it is none of these.
    """
    from kestrelctl.core.model.job.ending_rules import STOP_SIGNALS

    name = str(text).strip().upper().removeprefix("SIG")
    if name and name not in STOP_SIGNALS:
        raise UsageError(
            f"not a stop signal: {str(text)[:40]!r}", hint=f"write one of {', '.join(STOP_SIGNALS)}"
        )
    return name
