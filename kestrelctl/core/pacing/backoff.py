"""How long to wait before the next try to connect."""

from __future__ import annotations

FIRST_SECONDS = 0.25
LONGEST_SECONDS = 10.0


def pause_seconds(failures: int, chance: float) -> float:
    """The pause after so many failures in a row.

    Doubles up to ten seconds, spread over its upper half, so that a thousand workers do not come
    back in the same moment.

    Args:
        failures: at least 1.
        chance: a random number from 0 to 1.
    """
    longest: float = min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), LONGEST_SECONDS)
    return longest * (0.5 + 0.5 * chance)
