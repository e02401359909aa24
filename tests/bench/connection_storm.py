"""A real server with many sessions: what it takes, and how long all take to come back.

    .venv/bin/python tests/bench/connection_storm.py [SESSIONS]

Starts a pool of this machine, whose workers only wait as long as tasks would take, kills its
server with -9, and prints the memory of server, manager and workers for each session, the processor
time of the idle pool, and the seconds until the manager has all workers again. A server of one
process has as many sessions as it may have open files (`ulimit -n`), less a hundred.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
import time
import urllib.request

import psutil

from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.pool_state import PoolState

IDLE_SECONDS = 60.0
HELLOS = 'kestrel_stanzas_total{direction="in",kind="hello"}'
LAG = "kestrel_event_loop_lag_max_seconds"


def metric(state: PoolState, name: str) -> float:
    """Returns a value of the manager's page for Prometheus; 0 if the page cannot be had."""
    with (
        contextlib.suppress(OSError),
        urllib.request.urlopen(state.metrics, timeout=60) as answer,
    ):
        page = answer.read().decode()
        if (found := re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)) is not None:
            return float(found[1])
    return 0.0


def processes(state: PoolState) -> dict[str, list[psutil.Process]]:
    workers = [child for pid in state.worker_pids for child in psutil.Process(pid).children()]
    return {
        "server": [psutil.Process(state.server_pid)],
        "manager": [psutil.Process(state.manager_pid)],
        "workers": workers,
    }


def cpu_seconds(found: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in found)


async def measure(sessions: int) -> None:
    began = time.monotonic()
    async with throw_away_pool(sessions, "inline") as state:
        print(f"{sessions:,} sessions are there after {time.monotonic() - began:.0f} s", flush=True)
        found = processes(state)
        before = {name: cpu_seconds(group) for name, group in found.items()}
        await asyncio.sleep(IDLE_SECONDS)
        for name, group in found.items():
            used = 100 * (cpu_seconds(group) - before[name]) / IDLE_SECONDS
            memory = sum(process.memory_full_info().uss for process in group)
            print(
                f"{name}: {used:.1f} % of a core, {memory / 1e6:,.0f} MB, "
                f"{memory / sessions / 1e3:.1f} kB a session",
                flush=True,
            )
        hellos = metric(state, HELLOS)
        found["server"][0].kill()
        killed = time.monotonic()
        while metric(state, HELLOS) < hellos + sessions:
            if time.monotonic() > killed + 600:
                raise SystemExit("they do not come back")
            await asyncio.sleep(0.2)
        print(
            f"server killed: all are back after {time.monotonic() - killed:.1f} s; "
            f"largest lag of the manager {metric(state, LAG):.2f} s"
        )


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
