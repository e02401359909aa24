"""How many workers suit a run: few with many tasks each, as many tasks as the machine can start.

Each worker is a session that has to be served, and a worker of several processors is sent several
tasks in a message. So a pool that is made to be fast has one worker for each core, and what is to
be chosen is how many tasks each runs at a time.
"""

from __future__ import annotations

from math import ceil

import msgspec

from kestrelctl.bench.bounds import Sleep
from kestrelctl.core.model.config import Config

#: Tasks of no length at a time for each core: enough that one starts while others are reported.
#: A core starts about 1,000 a second, and a report and the next hand-out take some milliseconds.
TASKS_PER_CORE = 8
#: Of the tasks that the pool can start a second, so many are asked of it when tasks sleep. At all
#: of them dispatch has no time to spare, and workers are often only half busy (see `efficiency`).
SHARE_OF_RATE = 0.6
#: Tasks that sleep at a time, at most: each is a process with descriptors and memory.
MOST_TASKS = 2000
#: Of these each worker runs no more: the pool counts no more processors of one account.
MOST_TASKS_EACH = int(Config().max_account_cpus)


class PoolSize(msgspec.Struct, frozen=True):
    """So many workers, each with so many tasks of one processor at a time."""

    workers: int
    tasks_each: int = 1

    @property
    def slots(self) -> int:
        """Tasks at a time in the whole pool."""
        return self.workers * self.tasks_each

    def __str__(self) -> str:
        return written(self.workers, self.slots)


def written(workers: int, slots: int) -> str:
    """`917` workers of one task at a time each; `2x8` of eight; `3 (20)` if they differ."""
    if workers == slots:
        return f"{workers:,}"
    each, rest = divmod(slots, workers)
    return f"{workers:,} ({slots:,})" if rest else f"{workers:,}x{each:,}"


def suited(sleep: Sleep, tasks_per_second: float, cores: int) -> PoolSize:
    """The pool for tasks that sleep so long, on a machine where a small pool was so fast.

    Tasks of t seconds need R·t of them at a time to end R a second.

    Args:
        tasks_per_second: `sleep 0`, measured with a pool of one worker for each core.
        cores: that this process may use, at least 1.
    """
    busy = ceil(SHARE_OF_RATE * tasks_per_second * sleep.mean / cores)
    most = min(MOST_TASKS // cores, MOST_TASKS_EACH)
    return PoolSize(cores, max(TASKS_PER_CORE, min(busy, most)))
