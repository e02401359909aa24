"""How long a bench will take, from a short measurement of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, log2

import msgspec

from kestrelctl.bench.bounds import Sleep
from kestrelctl.bench.pool_size import PoolSize

#: What a pool with twice as many sessions needs more for a task.
MORE_PER_DOUBLING = 0.04
#: A session logs in, and is gone again, in the time of so many tasks of no length.
TASKS_PER_SESSION = 4.0
#: The list of the tasks is read, and drawn, in the time of this share of them.
SHARE_OF_READING = 0.06
#: How sharply the longer of two limits rules: near the point where they are equal both cost time.
SHARPNESS = 4.0
#: From the end of a task to the start of the next one in its place, in latencies of `sleep 0`: the
#: report waits for its turn, and so does the process.
LATENCIES_BETWEEN_TASKS = 2.0


class Speed(msgspec.Struct, frozen=True):
    """What a short measurement said of this machine.

    Attributes:
        tasks_per_second: `sleep 0` on a pool of one worker for each core.
        latency_seconds: what dispatch added to a task there, as a median.
        pool_seconds: to start and to stop that pool.
        bare_seconds: that it took to measure the bare rate of process starts.
        cores: that this process may use.
    """

    tasks_per_second: float
    latency_seconds: float
    pool_seconds: float
    bare_seconds: float
    cores: int


class ExpectedRun(msgspec.Struct, frozen=True):
    """A run that is to come, on how many workers, and its makespan as far as can be said."""

    sleep: Sleep
    size: PoolSize
    seconds: float


class Expectation(msgspec.Struct, frozen=True):
    """What is to come.

    Attributes:
        seconds: all of it, from now on.
        tasks_per_second: that were measured for it.
    """

    runs: tuple[ExpectedRun, ...]
    seconds: float
    tasks_per_second: float


def expect(planned: Sequence[tuple[Sleep, PoolSize]], tasks: int, speed: Speed) -> Expectation:
    """How long runs of so many tasks each take, with the pools that are made for them."""
    runs = tuple(
        ExpectedRun(sleep, size, makespan_seconds(sleep, size, tasks, speed))
        for sleep, size in planned
    )
    reading = SHARE_OF_READING * tasks / speed.tasks_per_second
    total = sum(run.seconds + reading + speed.bare_seconds for run in runs)
    for size, _ in groupby(runs, lambda run: run.size):
        total += pool_seconds(size, speed)
    return Expectation(runs, total, speed.tasks_per_second)


def pool_seconds(size: PoolSize, speed: Speed) -> float:
    """To start and to stop a pool."""
    more = max(0, size.workers - speed.cores)
    return speed.pool_seconds + more * TASKS_PER_SESSION / speed.tasks_per_second


def makespan_seconds(sleep: Sleep, size: PoolSize, tasks: int, speed: Speed) -> float:
    """Of one run: the larger of what its workers and what its dispatch need, and some of the other.

    Equal tasks come in whole waves. When the last task of random length has been started, two
    thirds of the longest are still to come.
    """
    between = LATENCIES_BETWEEN_TASKS * speed.latency_seconds
    if sleep.shortest == sleep.longest:
        busy = ceil(tasks / size.slots) * (sleep.longest + between) if sleep.longest else 0.0
    else:
        busy = tasks * (sleep.mean + between) / size.slots
        busy += 2 / 3 * (sleep.longest - sleep.shortest)
    doublings = log2(max(1.0, size.workers / speed.cores))
    dispatch = tasks * (1 + MORE_PER_DOUBLING * doublings) / speed.tasks_per_second
    return float((busy**SHARPNESS + dispatch**SHARPNESS) ** (1 / SHARPNESS))
