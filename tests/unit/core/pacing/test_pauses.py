"""A thousand sessions lose the server in one moment: when each tries to connect again."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kestrelctl.core.pacing.backoff import pause_of_manager_seconds, pause_of_many_seconds

SESSIONS = 917
#: In any second: about what a server logs in, and tries to reach one that is not there.
MOST_LOGINS_A_SECOND = 500
MOST_TRIES_A_SECOND = 600


def tries(away_seconds: float, dice: Random) -> list[float]:
    """When one session tries: all moments from the loss on, up to the first that succeeds."""
    at: list[float] = []
    now, failures = 0.0, 0
    while now < away_seconds or not at:
        failures += 1
        now += pause_of_many_seconds(failures, dice.random())
        at.append(now)
    return at


def most_in_a_second(moments: list[float]) -> int:
    by_quarter = Counter(int(4 * moment) for moment in moments)
    return max(
        sum(by_quarter[first + quarter] for quarter in range(4)) for first in list(by_quarter)
    )


@pytest.mark.parametrize("away_seconds", [0.0, 0.2, 1.0, 5.0, 60.0, 600.0])
def test_many_sessions_come_back_within_five_seconds_and_not_all_at_once(
    away_seconds: float,
) -> None:
    dice = Random(7)
    sessions = [tries(away_seconds, dice) for _ in range(SESSIONS)]
    assert max(at[-1] for at in sessions) - away_seconds < 5.0
    assert most_in_a_second([at[-1] for at in sessions]) <= MOST_LOGINS_A_SECOND
    assert most_in_a_second([moment for at in sessions for moment in at]) <= MOST_TRIES_A_SECOND


def test_the_manager_is_there_before_most_of_them() -> None:
    assert max(pause_of_manager_seconds(n, 1.0) for n in range(1, 100)) <= 0.5
    assert sum(pause_of_many_seconds(1, chance / 100) > 0.5 for chance in range(100)) > 50
