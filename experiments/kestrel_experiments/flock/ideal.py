"""The best that a pool could do without flocking: first come, first served, with no time lost.

A live run without flocking is compared with it: the difference is what the pool itself adds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kestrel_experiments.flock_simulation.trace import Arrival


def ideal_waits(tasks: Iterable[Arrival], machines: int) -> list[float]:
    """Computes how long each task waits if a free machine takes the oldest at once.

    The result is in the unit of the trace.

    Args:
        tasks: in the order of their moments.
    """
    free_at = [0.0] * machines
    waits = []
    for task in tasks:
        start = max(task.at, free_at[0])
        waits.append(start - task.at)
        heapq.heapreplace(free_at, start + task.seconds)
    return waits
