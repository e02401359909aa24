"""Decides when a worker that said nothing has to give a sign of life."""

from __future__ import annotations

import math


def pause_seconds(spoke_at: float, now: float, heartbeat_seconds: float, draw: float) -> float:
    """The time for which a worker may still stay silent; 0 if a sign of life is due.

    It counts from when the worker last said anything, whatever it was: if it counted from the last
    sign of life, a word in between would stretch the silence after it to twice the interval. The
    time is nine to ten tenths of the interval, down to a whole second of the clock if there is one
    in that time: signs of life that come together cost server and manager a third of what they cost
    singly.

    Args:
        spoke_at, now: seconds since the epoch; a clock that was set back cannot make it longer than
            the interval.
        heartbeat_seconds: the longest silence that the pool allows.
        draw: a random number from 0 to 1.
    """
    due = spoke_at + heartbeat_seconds * (0.9 + 0.1 * draw)
    if math.floor(due) > spoke_at:
        due = math.floor(due)
    return min(max(0.0, due - now), heartbeat_seconds)
