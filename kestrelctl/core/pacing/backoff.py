"""The pauses after failures: twice as long after each, up to a bound."""

from __future__ import annotations

FIRST_SECONDS = 0.25
LONGEST_SECONDS = 10.0

#: For one of many: the longest first pause, and the longest of all, between two tries to connect.
#: A server that was away is full again so soon after its return, and no sooner.
FIRST_OF_MANY_SECONDS = 3.0
LONGEST_OF_MANY_SECONDS = 4.0
#: The longest pause of the manager, of which there is one: it is back before its workers.
LONGEST_OF_MANAGER_SECONDS = 0.5
#: How long workers may need after the server's return: the pause, and the queue at the login.
RETURN_SECONDS = 10.0


def doubled_seconds(first_seconds: float, times: int, longest_seconds: float) -> float:
    """A pause that was doubled so many times, but is never above the longest."""
    return min(first_seconds * 2.0 ** min(times, 30), longest_seconds)


def pause_seconds(failures: int, chance: float, longest_seconds: float = LONGEST_SECONDS) -> float:
    """The pause before the next try of something, after so many failures in a row.

    Doubles up to the longest, spread over its upper half.

    Args:
        failures: at least 1.
        chance: a random number from 0 to 1.
    """
    longest = doubled_seconds(FIRST_SECONDS, failures - 1, longest_seconds)
    return longest * (0.5 + 0.5 * chance)


def pause_of_many_seconds(failures: int, chance: float) -> float:
    """The pause of a worker's or user's session before it tries to connect again.

    A thousand of them lose the server in the same moment, so the very first pause is spread over
    seconds. No pause is longer than it takes to spread them: a session that is in a longer one when
    the server comes back is missing for as long.

    Args:
        failures: in a row, at least 1.
        chance: a random number from 0 to 1.
    """
    longest = doubled_seconds(FIRST_OF_MANY_SECONDS, failures - 1, LONGEST_OF_MANY_SECONDS)
    return longest * (0.05 + 0.95 * chance)


def pause_of_manager_seconds(failures: int, chance: float) -> float:
    """The same for the manager's session: until it is there, the server turns requests away."""
    return pause_seconds(failures, chance, LONGEST_OF_MANAGER_SECONDS)
