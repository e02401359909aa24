"""How large an ad is on the wire and in memory: pools of 100, 1,000 and 5,000 idle workers.

    python tests/bench/adsize.py [WORKERS...]

Bytes are those that the kernel counted on the manager's and the workers' connections to the server
(`ss -ti`), without TLS. Memory is what the manager and Prosody have grown by, for each worker.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time

import psutil

from kestrelctl.access.connection import ask
from kestrelctl.cli.pool.traffic import watch
from kestrelctl.core.counting.traffic import heartbeat_traffic
from kestrelctl.core.model.config import Config
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol.answers import PoolSummary
from kestrelctl.protocol.requests import PoolStatus

LOOK_SECONDS = 60.0


def wire(pool: PoolState) -> tuple[int, int]:
    """Bytes so far: sent by the workers and the user to the server, received by the manager."""
    listing = subprocess.run(
        ["ss", "-tinHO", "state", "established"], capture_output=True, text=True, check=True
    ).stdout
    connections = psutil.Process(pool.manager_pid).net_connections("tcp")
    manager_ends = {f"127.0.0.1:{c.laddr.port}" for c in connections if c.raddr}
    clients = component = 0
    for line in listing.splitlines():
        local = line.split()[2]
        if local.endswith(f":{pool.port}"):
            clients += _field(line, "bytes_received")
        elif local in manager_ends:
            component += _field(line, "bytes_received")
    return clients, component


def _field(line: str, name: str) -> int:
    found = re.search(rf"\b{name}:(\d+)", line)
    return int(found[1]) if found else 0


async def measure(workers: int, empty: tuple[int, int]) -> tuple[int, int]:
    """Prints one line; returns the resident bytes of manager and server."""
    async with throw_away_pool(workers, "inline") as pool, connect_local(pool) as connection:
        joined, settle = wire(pool), 1.5 * heartbeat_traffic(workers, Config()).heartbeat_seconds
        await asyncio.sleep(settle)
        before, started = wire(pool), time.monotonic()
        # Signs of life come in waves as long as their interval: whole ones are looked at.
        interval = heartbeat_traffic(workers, Config()).interval_seconds
        seen = await watch(connection, interval * max(1, round(LOOK_SECONDS / interval)))
        after, passed = wire(pool), time.monotonic() - started
        status = await ask(connection, PoolStatus(), PoolSummary)
        memory = status.manager_rss_bytes, psutil.Process(pool.server_pid).memory_info().rss
        beats = sum(r.messages_per_second for r in seen.rates if r.kind == "heartbeat")
        if empty != (0, 0):
            print(
                f"{workers:>6,} workers: joining {joined[0] / workers:5.0f} B sent each; idle "
                f"{beats:6.1f} beats/s (predicted {seen.predicted.heartbeats_per_second:.1f}), "
                f"{(after[0] - before[0]) / passed / 1000:5.1f} kB/s sent by workers, "
                f"{(after[1] - before[1]) / passed / 1000:5.1f} kB/s at the manager; "
                f"manager {(memory[0] - empty[0]) / workers / 1000:5.1f} kB, "
                f"server {(memory[1] - empty[1]) / workers / 1000:5.1f} kB a worker",
                flush=True,
            )
        return memory


async def main() -> None:
    global LOOK_SECONDS
    look, LOOK_SECONDS = LOOK_SECONDS, 1.0
    empty = await measure(1, (0, 0))
    LOOK_SECONDS = look
    for workers in [int(word) for word in sys.argv[1:]] or [100, 1_000, 5_000]:
        await measure(workers, empty)


asyncio.run(main())
