"""What a look at a pool costs its manager: `python tests/bench/overview.py [workers] [jobs]`.

Prints the time of making an overview (at most once a second, however many look) and of sending the
one at hand to a further viewer, in ms, and its size.
"""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import msgspec

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool
from kestrelctl.manager.requests.overview import Overviews
from kestrelctl.protocol.codec import encode

ROUNDS = 100


def busy_pool(workers: int, jobs: int) -> Pool:
    """Each fourth job cannot run anywhere, and each of them asks for something else."""
    pool = Pool(Snapshot(epoch=1, secret=bytes(32), next_job_id=1, jobs=[], workers=[]))
    pool.handle(ev.Reconnected(at=1.0))
    for number in range(workers):
        ad = WorkerAd(assets={"cpus": 4 + number % 4, "memory": 8 << 30})
        jid = f"w{number}@workers.example.org/1"
        pool.handle(ev.Joined(at=1.0, worker=jid, incarnation="a", ad=ad, holds=[]))
        pool.handle(ev.WorkerStored(at=1.0, worker=jid))
    for number in range(jobs):
        wanted = 64.0 + number if number % 4 == 0 else 1.0
        spec = JobSpec(
            program=Program(argv=("./fit", "{n}")), count=10_000, request={"cpus": wanted}
        )
        pool.handle(ev.Submit(at=1.0, request=str(number), owner="ada@example.org", spec=spec))
        pool.handle(ev.JobStored(at=1.0, job_id=number + 1))
    pool.schedule(1.0)
    return pool


def main(workers: int, jobs: int) -> None:
    pool = busy_pool(workers, jobs)
    service = SimpleNamespace(
        pool=pool,
        store=MemoryStore(),
        domain="pool",
        started_at=0.0,
        store_error="",
        store_error_since=None,
        unstored=dict,
        listen=lambda *_: None,
    )
    overviews = Overviews(service)  # type: ignore[arg-type]
    made, sent = [], []
    for number in range(ROUNDS):
        started = time.perf_counter()
        overviews.latest(10.0 + number)
        made.append(time.perf_counter() - started)
        started = time.perf_counter()
        text = encode(msgspec.structs.replace(overviews.latest(10.0 + number), id="1"))
        sent.append(time.perf_counter() - started)
    made.sort()
    sent.sort()
    found = overviews.latest(10.0 + ROUNDS)
    waiting = sum(found.waiting.values())
    print(
        f"{workers} workers, {jobs} jobs: {found.running:,} running, {waiting:,} waiting;"
        f" made in {made[ROUNDS // 2] * 1000:.2f} ms (at most {made[-1] * 1000:.2f}),"
        f" sent in {sent[ROUNDS // 2] * 1000:.2f} ms, {len(text):,} bytes"
    )


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*given or (1000, 100))
