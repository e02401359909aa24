"""Jobs of one task each, submitted from Python one after another, on the pool in use:
`python tests/bench/submissions.py [jobs]`.

With up to 100 unanswered, and strictly one by one. Prints the seconds until the last was
acknowledged, and jobs a second; the tasks run meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time

from kestrelctl.client.pool import AsyncClient

UNANSWERED = 100


async def submitted(pool: AsyncClient, jobs: int, unanswered: int) -> float:
    """Returns the seconds that submissions took, with so many unanswered at a time."""
    numbers = itertools.count()

    async def submit_some() -> None:
        while next(numbers) < jobs:
            await pool.submit(["true"])

    began = time.perf_counter()
    await asyncio.gather(*(submit_some() for _ in range(unanswered)))
    return time.perf_counter() - began


async def measure(jobs: int) -> None:
    """Prints what came of it."""
    async with AsyncClient() as pool:
        await submitted(pool, UNANSWERED, 1)
        for unanswered in (UNANSWERED, 1):
            seconds = await submitted(pool, jobs, unanswered)
            print(
                f"{jobs:,} jobs, up to {unanswered} unanswered: {seconds:.1f} s, "
                f"{jobs / seconds:,.0f} jobs/s",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
