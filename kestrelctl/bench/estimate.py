"""Estimates how long a bench will take, from a short measurement of the machine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import ceil, log2

import msgspec

from kestrelctl.bench.bounds import Sleep
from kestrelctl.bench.pool_size import PoolSize

#: The share by which a task takes longer on a pool with twice as many sessions.
MORE_PER_DOUBLING = 0.04
#: The tasks of no length that take as long as a session needs to log in and out again.
TASKS_PER_SESSION = 4.0
#: The share of the tasks that take as long as it takes to read and draw their list.
SHARE_OF_READING = 0.06
#: The exponent that combines two limits: where they are about equal, both cost time.
SHARPNESS = 4.0
#: The time from the end of a task to the start of the next one in its place, in latencies of
#: `sleep 0`: the report waits for its turn, and so does the process.
LATENCIES_BETWEEN_TASKS = 2.0


class Speed(msgspec.Struct, frozen=True):
    """The results of a short measurement of this machine.

    Attributes:
        tasks_per_second: `sleep 0` on a pool of one worker for each core.
        latency_seconds: the median time that dispatch added to a task there.
        pool_seconds: the time to start and to stop that pool.
        bare_seconds: the time it took to measure the bare rate of process starts.
        cores: the cores that this process may use.
    """

    tasks_per_second: float
    latency_seconds: float
    pool_seconds: float
    bare_seconds: float
    cores: int


class ExpectedRun(msgspec.Struct, frozen=True):
    """A run that is to come: its workers, and an estimate of its makespan."""

    sleep: Sleep
    size: PoolSize
    seconds: float


class Expectation(msgspec.Struct, frozen=True):
    """The runs that are to come, and the time they will take.

    Attributes:
        seconds: the time of all of it, from now on.
        tasks_per_second: the rate that was measured for this estimate.
    """

    runs: tuple[ExpectedRun, ...]
    seconds: float
    tasks_per_second: float


def expect(planned: Sequence[tuple[Sleep, PoolSize]], tasks: int, speed: Speed) -> Expectation:
    """Estimates how long runs of `tasks` tasks each take, with the pools that are made for them."""
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
    """Estimates the time to start and to stop a pool."""
    more = max(0, size.workers - speed.cores)
    return speed.pool_seconds + more * TASKS_PER_SESSION / speed.tasks_per_second


def makespan_seconds(sleep: Sleep, size: PoolSize, tasks: int, speed: Speed) -> float:
    """Estimates one run: the larger of the times its workers and its dispatch need, and a bit more.

    Near the point where the two times are equal, the smaller one adds to the larger. Equal tasks
    come in whole waves. When the last task of random length has been started, two thirds of the
    longest are still to come.
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
