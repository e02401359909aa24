"""How long somebody waits whose first task comes while another user floods the pool:
`python tests/bench/newcomer.py [rounds]`.

The pool has one worker with the processors of this machine, as `up` makes it, and is kept full
with `/bin/sleep 0`. In each round somebody comes who was not there for a while, and then some more
times in a row. Printed is the time from submission to result of his jobs of one task.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import time

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.requests import CancelJobs, SubmitJob
from kestrelctl.xmpp.user import UserConnection

#: Long enough for queues to be long again.
AWAY_SECONDS = 12.0
IN_A_ROW = 20


async def seconds_of_one(user: UserConnection) -> float:
    """From the submission of one task to its result."""
    began = time.perf_counter()
    program = Program(argv=("/bin/true", str(began)))  # nobody knows how long it takes
    await user.ask(SubmitJob(spec=JobSpec(program=program), watch=True))
    await anext(aiter(user.pushed()))
    return time.perf_counter() - began


def shown(seconds: list[float]) -> str:
    """The middle one and the longest, in milliseconds."""
    return f"p50 {1000 * statistics.median(seconds):.0f} ms, at most {1000 * max(seconds):.0f} ms"


async def measure(rounds: int) -> None:
    """Prints how long he waited when he came, and when he had been there before."""
    cpus = len(os.sched_getaffinity(0))
    first, later = [], []
    async with (
        throw_away_pool(1, processors=cpus) as pool,
        connect_local(pool) as flooding,
        connect_local(pool, admin=True) as coming,
    ):
        flood = JobSpec(program=Program(argv=("/bin/sleep", "0")), count=1_000_000)
        await flooding.ask(SubmitJob(spec=flood))
        for _ in range(rounds):
            await asyncio.sleep(AWAY_SECONDS)
            first.append(await seconds_of_one(coming))
            for _ in range(IN_A_ROW):
                await asyncio.sleep(0.1)
                later.append(await seconds_of_one(coming))
        await flooding.ask(CancelJobs(jobs="all"))
    print(f"who comes: {shown(first)}; who was there before: {shown(later)}")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
