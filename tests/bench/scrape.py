"""What one look at the manager's page costs it: `python tests/bench/scrape.py [workers...]`.

Prints the processor time of writing the page of a busy pool, in ms (median), and its size.
"""

from __future__ import annotations

import statistics
import sys
import time

from overview import busy_pool

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.metrics.exposition import written
from kestrelctl.metrics.pool_families import ManagerProcessNumbers, PoolFamilies
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.store.port import Statistics

ROUNDS = 30
JOBS = 20


def main(workers: int) -> None:
    numbers = ManagerProcessNumbers(
        connected=True,
        store=Statistics(commits=2, commit_seconds=0.1, records=7, bytes_on_disk=4096),
        store_error="",
        commits=Histogram((0.01, 0.1)),
        certificate=None,
    )
    families = PoolFamilies(busy_pool(workers, JOBS), StanzaCounts(), lambda: numbers, lambda: 10.0)
    took = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        page = written(families())
        took.append(1000 * (time.thread_time() - started))
    print(f"{workers} workers: {statistics.median(took):.1f} ms, {len(page) / 1000:,.0f} kB")


if __name__ == "__main__":
    for given in sys.argv[1:] or ["1000", "5000"]:
        main(int(given))
