"""What each rung of isolation adds to the start of a task: `true`, through the real executor.

    .venv/bin/python tests/bench/isolation.py [--starts 300] [--at-once N]

A start is measured from the order to the report, one at a time; starts/s with as many at once as
there are processors. Rungs that do not work on the machine are left out, with the cause. Take the
figures of an otherwise idle machine; they include the scheduler's share.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import UsageError
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.probe import choose
from kestrelctl.worker.isolation.rung import Rung
from kestrelctl.worker.run.executor import CommandSpec, Completion
from kestrelctl.worker.run.process_executor import ProcessExecutor

WARM_UP = 20
ENV = {"PATH": "/usr/bin:/bin"}


class Starter:
    """An executor that is asked for one task after the other."""

    def __init__(self, directory: Path, rung: Rung) -> None:
        self._ended: asyncio.Queue[Completion] = asyncio.Queue()
        self.executor = ProcessExecutor(directory / "tasks", self._ended.put_nowait, rung=rung)
        self._number = 0

    def start(self) -> None:
        self._number += 1
        self.executor.start(CommandSpec(self._number, Program(argv=("true",)), ENV))

    async def end(self) -> None:
        ended = await self._ended.get()
        if ended.exit_code != 0:
            raise SystemExit(f"a task ended with {ended}")


async def measure(rung: Rung, directory: Path, starts: int, at_once: int) -> tuple[str, float]:
    """A row of the table, and the median in seconds."""
    starter = Starter(directory, rung)
    seconds = []
    for number in range(WARM_UP + starts):
        began = time.perf_counter()
        starter.start()
        await starter.end()
        if number >= WARM_UP:
            seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    for _ in range(at_once):
        starter.start()
    for number in range(starts):
        await starter.end()
        if number < starts - at_once:
            starter.start()
    rate = starts / (time.perf_counter() - began)
    await starter.executor.close()
    median = statistics.median(seconds)
    p99 = sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]
    return f"{1000 * median:8.2f} ms {1000 * p99:8.2f} ms {rate:10,.0f}", median


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--starts", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    print(f"{'isolation':<12} {'median':>11} {'p99':>11} {'starts/s':>10} {'above plain':>12}")
    plain = 0.0
    for name in reversed(RUNGS):
        with tempfile.TemporaryDirectory() as directory:
            data = Path(directory)
            try:
                rung = choose(name, data, FileView(data))
            except UsageError as error:
                print(f"{name:<12} {error.cause}")
                continue
            row, median = await measure(rung, data, options.starts, options.at_once)
            plain = plain or median
            print(f"{name:<12} {row} {1000 * (median - plain):9.2f} ms")


if __name__ == "__main__":
    asyncio.run(main())
