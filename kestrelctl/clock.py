"""Time for decisions: seconds since the epoch that never go back, whatever the machine's clock
does.
"""

from __future__ import annotations

import time

_offset = time.time() - time.monotonic()
_offset_with_sleep = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def now() -> float:
    """Seconds since the epoch, steady."""
    return _offset + time.monotonic()


def of_monotonic(moment: float) -> float:
    """Returns the moment by `now` of one that is given by the monotonic clock."""
    return _offset + moment


def wall() -> float:
    """Seconds since the epoch by the machine's clock, which somebody may set."""
    return time.time()


def unused_seconds(used_at: float) -> float:
    """Returns for how many seconds, at least, something has not been used.

    The last use is known by the machine's clock only, such as a file's time of change. Setting that
    clock makes nothing older.
    """
    return min(now(), wall()) - used_at


def awake_or_asleep() -> float:
    """Seconds since the epoch, steady; unlike `now`, it goes on while the machine sleeps.

    Use it for what must not last too long.
    """
    return _offset_with_sleep + time.clock_gettime(time.CLOCK_BOOTTIME)
