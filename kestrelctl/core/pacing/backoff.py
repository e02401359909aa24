"""How long to wait after failures: twice as long after each, up to a bound."""

from __future__ import annotations

FIRST_SECONDS = 0.25
LONGEST_SECONDS = 10.0


def doubled_seconds(first_seconds: float, times: int, longest_seconds: float) -> float:
    """A pause that was doubled so many times, but is never above the longest."""
    return min(first_seconds * 2.0 ** min(times, 30), longest_seconds)


def pause_seconds(failures: int, chance: float) -> float:
    """The pause before the next try to connect, after so many failures in a row.

    Doubles up to ten seconds, spread over its upper half, so that a thousand workers do not come
    back in the same moment.

    Args:
        failures: at least 1.
        chance: a random number from 0 to 1.
    """
    longest = doubled_seconds(FIRST_SECONDS, failures - 1, LONGEST_SECONDS)
    return longest * (0.5 + 0.5 * chance)
