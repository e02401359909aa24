"""Sets of ways in which a program ends: exit codes and signals."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from typing import TypeAlias

#: Ranges of exit codes, both ends included. A signal is minus its number.
Exits: TypeAlias = tuple[tuple[int, int], ...]

MOST_RANGES = 64
MAX_EXIT_CODE = 255


def holds(exits: Exits, exit_code: int, signal_number: int) -> bool:
    """Whether a set of exits holds the end of a program."""
    code = -signal_number if signal_number else exit_code
    return any(low <= code <= high for low, high in exits)


def overlap(some: Exits, others: Exits) -> int | None:
    """A code that is in both; None if there is none."""
    shared = (
        max(low, lowest)
        for low, high in some
        for lowest, highest in others
        if max(low, lowest) <= min(high, highest)
    )
    return next(shared, None)


def problem_with_exits(exits: Exits, *, signals: bool) -> str | None:
    """Says what is wrong with such a set, in words for its user; None if all is well.

    Args:
        signals: whether it may hold signals.
    """
    if len(exits) > MOST_RANGES:
        return f"at most {MOST_RANGES} exit codes and ranges, not {len(exits)}"
    for low, high in exits:
        if low > high:
            return f"the range {low}-{high} is empty"
        if low < 0 and not signals:
            return f"{one_exit(low)} is a signal, and only an exit code is a success"
        known = low == high and -low in _SIGNALS if low < 0 else high <= MAX_EXIT_CODE
        if not known:
            found = f"{low}" if low == high else f"{low} to {high}"
            return f"exit codes go from 0 to {MAX_EXIT_CODE}, not {found}"
    return None


def one_exit(code: int) -> str:
    """Writes one exit: `3`, or `SIGKILL` for -9."""
    return _SIGNALS.get(-code, str(code)) if code < 0 else str(code)


def exits_text(exits: Iterable[tuple[int, int]]) -> str:
    """Writes exits as options take them: `0,3-5,SIGKILL`."""
    return ",".join(one_exit(low) if low == high else f"{low}-{high}" for low, high in exits)


_SIGNALS = {each.value: each.name for each in signal.Signals}
