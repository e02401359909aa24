"""Time for decisions: seconds since the epoch that never go back, whatever the machine's clock
does.
"""

from __future__ import annotations

import time

_offset = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch, steady."""
    return _offset + time.monotonic()
