"""Which of many seeds are tried today: over some days, all of them."""

from __future__ import annotations

import datetime
import os

#: With this variable set to `all`, every seed is tried.
ALL = "KESTREL_SEEDS"


def due(count: int, days: int, today: int | None = None) -> list[int]:
    """The seeds below `count` that are tried on a day.

    Args:
        days: after so many days each has been tried.
        today: the day, as a number; None for today's.
    """
    if os.environ.get(ALL) == "all":
        return list(range(count))
    day = datetime.date.today().toordinal() if today is None else today
    return list(range(day % days, count, days))
