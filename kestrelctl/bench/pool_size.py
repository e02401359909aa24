"""Chooses the workers for a run: few with many tasks each, as many tasks as the machine can start.

Each worker is a session that has to be served, and a worker of several processors is sent several
tasks in a message. So a fast pool has one worker for each core, and only the number of tasks that
each runs at a time is left to choose.
"""

from __future__ import annotations

from math import ceil

import msgspec

from kestrelctl.bench.bounds import Sleep
from kestrelctl.core.model.config import Config

#: Tasks of no length at a time for each core: enough that one starts while others are reported.
#: A core starts about 1,000 a second, and a report and the next hand-out take some milliseconds.
TASKS_PER_CORE = 8
#: The share of the tasks the pool can start a second that is asked of it when tasks sleep. At the
#: full rate dispatch has no time to spare, and workers are often only half busy (see `efficiency`).
SHARE_OF_RATE = 0.6
#: The most tasks that sleep at a time: each is a process with descriptors and memory.
MOST_TASKS = 2000
#: The most of these that one worker runs: the pool counts no more processors of one account.
MOST_TASKS_EACH = int(Config().max_account_cpus)


class PoolSize(msgspec.Struct, frozen=True):
    """The size of a pool: its workers, and the tasks of one processor that each runs at a time."""

    workers: int
    tasks_each: int = 1

    @property
    def slots(self) -> int:
        """Tasks at a time in the whole pool."""
        return self.workers * self.tasks_each

    def __str__(self) -> str:
        return written(self.workers, self.slots)


def written(workers: int, slots: int) -> str:
    """Writes a size: `917` if each runs one task at a time, `2x8` if eight, `3 (20)` if mixed."""
    if workers == slots:
        return f"{workers:,}"
    each, rest = divmod(slots, workers)
    return f"{workers:,} ({slots:,})" if rest else f"{workers:,}x{each:,}"


def suited(sleep: Sleep, tasks_per_second: float, cores: int) -> PoolSize:
    """Returns the pool for tasks of this length, on a machine where a small pool had this rate.

    To end R tasks of t seconds a second, a pool has to run R·t of them at a time.

    Args:
        tasks_per_second: `sleep 0`, measured with a pool of one worker for each core.
        cores: the cores that this process may use, at least 1.
    """
    busy = ceil(SHARE_OF_RATE * tasks_per_second * sleep.mean / cores)
    most = min(MOST_TASKS // cores, MOST_TASKS_EACH)
    return PoolSize(cores, max(TASKS_PER_CORE, min(busy, most)))
