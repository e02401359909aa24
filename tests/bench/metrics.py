"""What metrics cost: `python tests/bench/metrics.py [pairs] [jobs] [workers] [executor] [seconds]`.

Sweeps of `sleep 0` with metrics (scraped each 15 seconds, as the role prometheus does, or as told)
and without, in turn, on throw-away pools; each pair in the other order than the one before. Prints
for each pair the ratio, with over without, of throughput and of the CPU time of manager and workers
(which other load on the machine disturbs less), their medians, and the longest scrape.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
import urllib.request
from pathlib import Path

from kestrelctl.bench import run as bench_run
from kestrelctl.bench.result import Run
from kestrelctl.bench.run import Plan, bench
from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.state import PoolState

SCRAPE_SECONDS = 15.0


class Scraper:
    """Reads every page of the pool under test for as long as it lives."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.pool: PoolState | None = None
        self.scrapes: list[float] = []

    async def scrape_forever(self) -> None:
        while True:
            await asyncio.sleep(self.seconds)
            pool = self.pool
            if pool is not None and pool.metrics and Path(pool.password_file).exists():
                for url in (pool.metrics, *pool.worker_metrics):
                    await asyncio.to_thread(self._read, url)

    def _read(self, url: str) -> None:
        started = time.perf_counter()
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            answer.read()
            self.scrapes.append(time.perf_counter() - started)


async def run(plan: Plan, scraper: Scraper) -> Run:
    @contextlib.asynccontextmanager
    async def seen(*args: object, **options: object):  # type: ignore[no-untyped-def]
        async with throw_away_pool(*args, **options) as state:  # type: ignore[arg-type]
            scraper.pool = state
            yield state
            scraper.pool = None

    bench_run.throw_away_pool = seen  # type: ignore[assignment]
    result = await bench(plan)
    return result.runs[0]


def cpu_seconds(found: Run) -> float:
    return found.manager_cpu_seconds + found.worker_cpu_seconds


async def measure(pairs: int, jobs: int, workers: int, executor: str, seconds: float) -> None:
    scraper = Scraper(seconds)
    scraping = asyncio.ensure_future(scraper.scrape_forever())
    ratios: list[float] = []
    cpu_ratios: list[float] = []
    for pair in range(pairs):
        found: dict[bool, Run] = {}
        for metrics in (True, False) if pair % 2 == 0 else (False, True):
            plan = Plan(
                jobs=jobs, workers=workers, sleeps=("0",), executor=executor, metrics=metrics
            )
            found[metrics] = await run(plan, scraper)
        on, off = found[True], found[False]
        ratios.append(on.tasks_per_second / off.tasks_per_second)
        cpu_ratios.append(cpu_seconds(on) / cpu_seconds(off))
        print(
            f"pair {pair + 1}: {on.tasks_per_second:,.0f} tasks/s with, "
            f"{off.tasks_per_second:,.0f} without: {ratios[-1]:.4f}; CPU "
            f"{cpu_seconds(on):.2f} s and {cpu_seconds(off):.2f} s: {cpu_ratios[-1]:.4f}",
            flush=True,
        )
    scraping.cancel()
    throughput, cpu = statistics.median(ratios), statistics.median(cpu_ratios)
    print(f"median: throughput {throughput:.4f}, CPU {cpu:.4f}")
    if scraper.scrapes:
        print(f"{len(scraper.scrapes)} scrapes, the longest {max(scraper.scrapes):.3f} s")


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(
        measure(
            int(given[0]) if given else 5,
            int(given[1]) if len(given) > 1 else 50_000,
            int(given[2]) if len(given) > 2 else 917,
            given[3] if len(given) > 3 else "process",
            float(given[4]) if len(given) > 4 else SCRAPE_SECONDS,
        )
    )
