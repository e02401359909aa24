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


def wall() -> float:
    """Seconds since the epoch by the machine's clock, which somebody may set."""
    return time.time()


def unused_seconds(used_at: float) -> float:
    """For how long something has not been used, at least, of which only the machine's clock says
    when that was: as a file's time of change. What somebody sets that clock to makes nothing older.
    """
    return min(now(), wall()) - used_at


def awake_or_asleep() -> float:
    """Seconds since the epoch, steady, and going on while the machine sleeps, as `now` does not.

    Use it for what must not last too long.
    """
    return _offset_with_sleep + time.clock_gettime(time.CLOCK_BOOTTIME)
