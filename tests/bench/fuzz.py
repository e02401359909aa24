"""Many mutated messages for a manager without a network: what breaks, what grows, what is logged.

    .venv/bin/python tests/bench/fuzz.py [MESSAGES] [SEED] [neighbour]

With `neighbour` they are what a pool that borrows sends a pool that lends, most of them templates.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from mutations import Lender, Manager
from neighbourskit import EagerLoop

ROUND = 10_000


def main(messages: int, seed: int, *, neighbour: bool) -> int:
    process = psutil.Process()
    troubles: list[str] = []
    for start in range(0, messages, ROUND):
        number = min(ROUND, messages - start)
        # A loop each, because timers of a loop keep what has ended.
        if neighbour:
            with asyncio.Runner(loop_factory=EagerLoop) as runner:
                found, words = runner.run(one_round_of_a_neighbour(number, seed + start))
        else:
            found, words = asyncio.run(one_round(number, seed + start))
        troubles += found
        gc.collect()
        left = process.memory_info().rss
        print(
            f"{start + number:,} messages: {len(troubles)} troubles; this round: {words}, "
            f"{left >> 20} MiB afterwards",
            flush=True,
        )
        for trouble in first_of_each(found):
            print(trouble)
    return 1 if troubles else 0


async def one_round(messages: int, seed: int) -> tuple[list[str], str]:
    """What broke, and in words what the manager came to."""
    with tempfile.TemporaryDirectory() as directory:
        manager = Manager(Path(directory), seed)
        await manager.tell(messages)
        await manager.close()
    return manager.troubles, f"{manager.lines:,} lines, {len(manager.pool.jobs):,} jobs active"


async def one_round_of_a_neighbour(messages: int, seed: int) -> tuple[list[str], str]:
    """The same of a lender."""
    with tempfile.TemporaryDirectory() as directory:
        lender = Lender(Path(directory), seed)
        await lender.tell(messages)
        works = await lender.works()
    troubles = lender.troubles + ([] if works else ["it runs no task of its own users any more"])
    return troubles, f"{len(lender.guests):,} guests"


def first_of_each(troubles: list[str]) -> list[str]:
    """The first of each, shortened."""
    return list(dict.fromkeys(trouble[:2000] for trouble in troubles))[:5]


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    sys.exit(
        main(
            numbers[0] if numbers else 200_000,
            numbers[1] if len(numbers) > 1 else 1,
            neighbour="neighbour" in sys.argv[1:],
        )
    )
