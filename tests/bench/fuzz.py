"""Many mutated messages for a manager without a network: what breaks, what grows, what is logged.

    .venv/bin/python tests/bench/fuzz.py [MESSAGES] [SEED]

A new manager begins after each 10,000, because jobs that were submitted are kept, as they must be.
Memory is compared between the managers, after each has ended.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from mutations import Manager

ROUND = 10_000


async def main(messages: int, seed: int) -> int:
    process = psutil.Process()
    troubles: list[str] = []
    for start in range(0, messages, ROUND):
        number = min(ROUND, messages - start)
        with tempfile.TemporaryDirectory() as directory:
            manager = Manager(Path(directory), seed + start)
            await manager.tell(number)
            largest = process.memory_info().rss
            await manager.close()
        troubles += manager.troubles
        lines, jobs = manager.lines, len(manager.pool.jobs)
        del manager
        gc.collect()
        left = process.memory_info().rss
        print(
            f"{start + number:,} messages: {len(troubles)} troubles; this round: {lines:,} lines, "
            f"{jobs:,} jobs active, {largest >> 20} MiB, afterwards {left >> 20} MiB",
            flush=True,
        )
        for trouble in manager_troubles(troubles):
            print(trouble)
    return 1 if troubles else 0


def manager_troubles(troubles: list[str]) -> list[str]:
    """The first of each, shortened."""
    return list(dict.fromkeys(trouble[:2000] for trouble in troubles))[:5]


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    sys.exit(asyncio.run(main(words[0] if words else 200_000, words[1] if len(words) > 1 else 1)))
