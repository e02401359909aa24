"""What an idle pool costs: `python tests/bench/idle.py [workers] [seconds]`.

Prints CPU use of manager and server together, and of the workers' processes, in per cent of one
core, and the memory of each; then the same for one plain worker.
"""

from __future__ import annotations

import asyncio
import sys

import psutil

from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.pool_state import PoolState


def processes(state: PoolState) -> dict[str, list[psutil.Process]]:
    workers = [child for pid in state.worker_pids for child in psutil.Process(pid).children()]
    return {
        "manager": [psutil.Process(state.manager_pid)],
        "server": [psutil.Process(state.server_pid)],
        "workers": workers,
        "keepers": [psutil.Process(pid) for pid in state.worker_pids],
    }


def cpu_seconds(found: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in found)


async def measure(workers: int, seconds: float) -> None:
    async with throw_away_pool(workers) as state:
        found = processes(state)
        await asyncio.sleep(20)  # until all have been told the interval of a pool of this size
        before = {name: cpu_seconds(group) for name, group in found.items()}
        await asyncio.sleep(seconds)
        for name, group in found.items():
            used = 100 * (cpu_seconds(group) - before[name]) / seconds
            memory = sum(process.memory_full_info().uss for process in group) / 1e6
            resident = sum(process.memory_info().rss for process in group) / 1e6
            print(
                f"{workers or 1:5d} workers  {name:8s} {used:6.2f} % of a core  "
                f"{memory:7.1f} MB own, {resident:7.1f} MB resident, {len(group)} processes"
            )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 917
    span = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    asyncio.run(measure(count, span))
    asyncio.run(measure(0, span))
