"""What metrics cost: `python tests/bench/metrics.py [pairs] [workers] [executor]`.

One pool, one long job of `sleep 0`, and windows of two seconds in turn with and without scrapes:
ten a second of every page, so that what one of them costs can be seen above the noise. Prints the
ratio of throughput, with over without, and what it comes to at the scrape intervals that are used.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
import urllib.request

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

TASKS = 100_000_000
COMMANDS = {"process": ("/bin/sleep", "0"), "inline": ("sleep", "0")}
WINDOW_SECONDS = 2.0
SCRAPES_PER_SECOND = 10
#: Each second, as for a look at a short sweep, and as the role prometheus does.
INTERVALS_SECONDS = (1, 15)


async def done(user: UserConnection, job_id: int) -> tuple[int, float]:
    """Tasks that are done, and when that was known."""
    found = await user.ask(rq.ListJobs(jobs=str(job_id)))
    assert isinstance(found, an.Jobs)
    return found.jobs[0].done, time.perf_counter()


def read(url: str) -> float:
    """Reads a page and returns how long that took, in seconds."""
    started = time.perf_counter()
    with urllib.request.urlopen(url, timeout=5) as answer:
        answer.read()
    return time.perf_counter() - started


async def scrape(urls: list[str], took: list[float]) -> None:
    """Reads every page, ten times a second, until it is cancelled."""
    due = time.perf_counter()
    while True:
        took += [await asyncio.to_thread(read, url) for url in urls]
        due += 1 / SCRAPES_PER_SECOND
        await asyncio.sleep(max(0.0, due - time.perf_counter()))


async def window(user: UserConnection, job_id: int, urls: list[str], took: list[float]) -> float:
    """Tasks a second for two seconds, scraped at the given addresses."""
    scraping = asyncio.ensure_future(scrape(urls, took)) if urls else None
    before, started = await done(user, job_id)
    await asyncio.sleep(WINDOW_SECONDS)
    after, ended = await done(user, job_id)
    if scraping is not None:
        scraping.cancel()
    return (after - before) / (ended - started)


async def measure(pairs: int, workers: int, executor: str) -> None:
    took: list[float] = []
    ratios: list[float] = []
    async with throw_away_pool(workers, executor) as state, connect_local(state) as user:
        urls = [state.metrics, *state.worker_metrics]
        spec = JobSpec(program=Program(argv=COMMANDS[executor]), count=TASKS)
        submitted = await user.ask(rq.SubmitJob(spec=spec))
        assert isinstance(submitted, an.Submitted)
        await asyncio.sleep(5)
        for pair in range(pairs):
            found: dict[bool, float] = {}
            for scraped in (True, False) if pair % 2 == 0 else (False, True):
                given = urls if scraped else []
                found[scraped] = await window(user, submitted.job_id, given, took)
            ratios.append(found[True] / found[False])
    ratio = statistics.mean(ratios)
    error = statistics.stdev(ratios) / pairs**0.5
    scrapes = len(took) / len(urls) / pairs / WINDOW_SECONDS
    print(f"{workers} workers, {len(urls)} pages, {scrapes:.1f} scrapes of each a second")
    print(f"throughput with over without: {ratio:.3f} ± {error:.3f} (mean of {pairs} pairs)")
    for seconds in INTERVALS_SECONDS:
        share = 1 / (seconds * scrapes)
        print(
            f"  at one each {seconds} s: costs {100 * (1 - ratio) * share:.2f} % "
            f"± {100 * error * share:.2f}"
        )
    print(f"a page took {1000 * statistics.median(took):.1f} ms, {1000 * max(took):.0f} at most")


if __name__ == "__main__":
    given = sys.argv[1:]
    asyncio.run(
        measure(
            int(given[0]) if given else 20,
            int(given[1]) if len(given) > 1 else 917,
            given[2] if len(given) > 2 else "process",
        )
    )
