"""How many processes this machine can start and reap a second, with nothing else in the way.

The physical limit of tasks that do nothing: one process per core, each in a loop of posix_spawn(3)
and waitpid(2) on `sleep 0`, with no pool, no server and no output around it.
"""

from __future__ import annotations

import os
import shutil
import time
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from statistics import median

from kestrelctl.errors import KestrelError, MissingTool

_START_TIMEOUT_SECONDS = 30.0
_start: Barrier


def measure_spawn_rate(rounds: int = 5, round_seconds: float = 0.6) -> float:
    """Processes per second over all cores this process may use: the median of several rounds.

    Blocks for about `rounds * round_seconds` and loads every core.

    Raises:
        MissingTool: there is no `sleep` program.
    """
    program = shutil.which("sleep")
    if program is None:
        raise MissingTool("no `sleep` program found", hint="apt-get install coreutils")
    cores = len(os.sched_getaffinity(0))
    context = get_context("spawn")
    with context.Pool(cores, initializer=_join, initargs=(context.Barrier(cores),)) as pool:
        work = [(program, round_seconds)] * cores
        totals = [sum(pool.starmap(_spawn_loop, work, chunksize=1)) for _ in range(rounds)]
    return median(totals)


def _join(start: Barrier) -> None:
    global _start
    _start = start


def _spawn_loop(program: str, seconds: float) -> float:
    """One core's rate over one round. All cores begin together, so that they share the machine."""
    argv = [os.path.basename(program), "0"]
    _start.wait(_START_TIMEOUT_SECONDS)
    began = now = time.perf_counter()
    spawned = 0
    while now - began < seconds:
        _, status = os.waitpid(os.posix_spawn(program, argv, os.environ), 0)
        if status != 0:
            raise KestrelError(f"`{program} 0` failed with wait status {status}")
        spawned += 1
        now = time.perf_counter()
    return spawned / (now - began)
