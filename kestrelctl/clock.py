"""Time for decisions: seconds since the epoch that never go back, whatever the machine's clock
does.
"""

from __future__ import annotations

import time

_offset = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch, steady."""
    return _offset + time.monotonic()


def wall() -> float:
    """Seconds since the epoch by the machine's clock, which somebody may set."""
    return time.time()


def latest() -> float:
    """Seconds since the epoch by the machine's clock, or by the steady one if that is ahead.

    Use it for what must not last too long: the steady clock stands still while the machine sleeps,
    and the machine's clock can be set back.
    """
    return max(now(), wall())
