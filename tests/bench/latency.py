"""Submission to result of one task on an idle pool: `python tests/bench/latency.py [rounds]`.

Then submission to acknowledgement of a job of a million tasks.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.requests import CancelJobs, SubmitJob

MILLIONS = 10


async def measure(rounds: int) -> None:
    async with throw_away_pool(2) as state, connect_local(state) as user:
        took = []
        for _ in range(rounds):
            await asyncio.sleep(0.1)
            started = time.perf_counter()
            await user.ask(
                SubmitJob(spec=JobSpec(program=Program(argv=("/bin/true",))), watch=True)
            )
            await anext(aiter(user.pushed()))
            took.append(1000 * (time.perf_counter() - started))
        slow = []
        for _ in range(MILLIONS):
            await asyncio.sleep(0.1)
            started = time.perf_counter()
            await user.ask(
                SubmitJob(spec=JobSpec(program=Program(argv=("sleep", "60")), count=1_000_000))
            )
            slow.append(1000 * (time.perf_counter() - started))
            await user.ask(CancelJobs(jobs="last"))
    cuts = statistics.quantiles(took, n=100)
    print(f"{rounds} rounds: p50 {cuts[49]:.1f} ms, p90 {cuts[89]:.1f} ms, p99 {cuts[98]:.1f} ms")
    print(f"a million tasks: acknowledged after {min(slow):.1f} to {max(slow):.1f} ms")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
