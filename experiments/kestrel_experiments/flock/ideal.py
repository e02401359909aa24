"""What a pool could do at best without flocking: first come, first served, and nothing in between.

It is what a live run without flocking is held against: the difference is what the pool itself adds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from kestrel_experiments.flock_simulation.trace import Arrival


def ideal_waits(tasks: Iterable[Arrival], machines: int) -> list[float]:
    """How long each task waits, in the unit of the trace, if a machine that is free takes the
    oldest at once.

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
