"""Measures how many processes this machine can start and reap a second, when nothing else runs.

This is the physical limit of tasks that do nothing: one process per core, each in a loop of
posix_spawn(3) and waitpid(2) on `sleep 0` in the environment of a task, with no pool, no server and
no output around it. A busy machine lowers it, so a bench measures it several times and takes the
best.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from statistics import median

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.errors import KestrelError, MissingTool
from kestrelctl.worker.run.variables import Environments

_start: Barrier


async def bare_rate() -> float:
    """Runs `measure_spawn_rate` in its own process, which is ended if the caller is cancelled.

    That process has its own session: Ctrl-C on a terminal does not reach it.

    Raises:
        MissingTool: there is no `sleep` program.
        KestrelError: it could not be measured.
    """
    _sleep_program()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kestrelctl.bench.spawn_rate"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd="/",  # with -m, Python looks for modules in the current directory first
        start_new_session=True,
    )
    try:
        said, trouble = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        words = trouble.decode(errors="replace").strip().splitlines()
        raise KestrelError(
            "the bare rate of process starts could not be measured",
            cause=words[-1] if words else f"the process ended with status {process.returncode}",
        )
    return float(said)


def task_environment() -> dict[str, str]:
    """The environment a worker here gives a task of a bench; a larger one makes starts slower."""
    spec = JobSpec(name="bench sleep 0", program=Program(argv=("/bin/sleep", "0")), count=1)
    attempt = LocalAttempt(1, Template.of(1, spec), 0, None, Claim({}), (1, 1, 0, 1, 0), 0.0)
    return Environments("w1@workers.localhost").of(attempt)


def measure_spawn_rate(rounds: int = 3, round_seconds: float = 0.25) -> float:
    """Processes per second over all cores this process may use: the median of several rounds.

    Blocks for about `rounds * round_seconds` and loads every core.

    Raises:
        MissingTool: there is no `sleep` program.
    """
    program = _sleep_program()
    cores = len(os.sched_getaffinity(0))
    context = get_context("spawn")
    barrier = context.Barrier(cores)
    with ProcessPoolExecutor(cores, context, initializer=_join, initargs=(barrier,)) as pool:
        programs, seconds = [program] * cores, [round_seconds] * cores
        totals = [sum(pool.map(_spawn_loop, programs, seconds)) for _ in range(rounds)]
    return median(totals)


def _sleep_program() -> str:
    program = shutil.which("sleep")
    if program is None:
        raise MissingTool("no `sleep` program found", hint="apt-get install coreutils")
    return program


def _join(start: Barrier) -> None:
    global _start
    _start = start


def _spawn_loop(program: str, seconds: float) -> float:
    """Measures one core's rate over one round. All cores begin together to share the machine."""
    argv = [os.path.basename(program), "0"]
    environment = task_environment()
    _start.wait()
    began = now = time.perf_counter()
    spawned = 0
    while now - began < seconds:
        _, status = os.waitpid(os.posix_spawn(program, argv, environment), 0)
        if status != 0:
            raise KestrelError(f"`{program} 0` failed with wait status {status}")
        spawned += 1
        now = time.perf_counter()
    return spawned / (now - began)


if __name__ == "__main__":
    print(measure_spawn_rate())
