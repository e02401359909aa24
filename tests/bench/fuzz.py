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


def main(messages: int, seed: int) -> int:
    process = psutil.Process()
    troubles: list[str] = []
    for start in range(0, messages, ROUND):
        number = min(ROUND, messages - start)
        # A loop each, because timers of a loop keep what has ended.
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


def first_of_each(troubles: list[str]) -> list[str]:
    """The first of each, shortened."""
    return list(dict.fromkeys(trouble[:2000] for trouble in troubles))[:5]


if __name__ == "__main__":
    words = [int(word) for word in sys.argv[1:]]
    sys.exit(main(words[0] if words else 200_000, words[1] if len(words) > 1 else 1))
