"""What expressions cost: a job explained, workers classed anew, passes with many requirements.
In processor time, with garbage looked for as seldom as a manager does.

.venv/bin/python tests/bench/expressions.py [WORKERS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from kestrelctl import garbage
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.handlers.submission import MOST_EXPRESSIONS
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool

REQUIREMENTS = 'Memory >= 512 && Rack < 100 && Machine != "h3" && Cpus >= 64 && isUndefined(Site)'


def pool_of(workers: int, racks: int) -> Pool:
    pool = Pool(Snapshot(epoch=1, secret=bytes(32), next_job_id=1, jobs=[], workers=[]))
    pool.handle(ev.Reconnected(at=0.0))
    join(pool, workers, racks)
    garbage.settle()
    return pool


def join(pool: Pool, workers: int, racks: int, first_rack: int = 0) -> None:
    for n in range(workers):
        ad = WorkerAd(
            assets={"cpus": 4.0, "memory": float(1 << 30)},
            host=f"h{n}",
            attributes={"rack": first_rack + n % racks, "serial": n},
        )
        name = f"w{n}@workers.pool/1"
        pool.handle(ev.Joined(at=0.0, worker=name, incarnation="1", ad=ad, holds=[]))
        pool.handle(ev.WorkerStored(at=0.0, worker=name))


def submit(pool: Pool, tasks: int = 10, **spec: str) -> int:
    job = JobSpec(program=Program(argv=("true",)), count=tasks, **spec)  # type: ignore[arg-type]
    job_id = 0
    for effect in pool.handle(ev.Submit(at=0.0, request="1", owner="ada", spec=job)):
        if isinstance(effect, fx.Feed):
            pool.handle(effect.event)
        elif isinstance(effect, fx.Answer):
            job_id = effect.job_id
    return job_id


def milliseconds(what: Callable[[], object]) -> float:
    begin = time.process_time()
    what()
    return (time.process_time() - begin) * 1000


def main(workers: int) -> None:
    for racks in (25, workers):
        pool = pool_of(workers, racks)
        job = pool.job(submit(pool, requirements=REQUIREMENTS))
        assert job is not None
        first = milliseconds(lambda: pool.explain(job, 0.0))  # noqa: B023
        again = min(milliseconds(lambda: pool.explain(job, 0.0)) for _ in range(5))  # noqa: B023
        join(pool, workers, racks, racks)
        changed = milliseconds(lambda: pool.explain(job, 0.0))  # noqa: B023
        print(
            f"explain, {workers:,} workers in {racks:,} classes: {again:.1f} ms, first {first:.1f},"
            f" after all ads have changed {changed:.1f}"
        )
    pool = pool_of(workers, 25)
    print(f"a job without expressions: {milliseconds(lambda: submit(pool)):.2f} ms")
    one = milliseconds(lambda: submit(pool, requirements='Machine == "h7" && Cpus > 64'))
    print(f"a job that names another machine: {one:.1f} ms")
    print(f"a job with a rank: {milliseconds(lambda: submit(pool, rank='Rack', tasks=1)):.1f} ms")
    for n in range(MOST_EXPRESSIONS - 2):
        submit(pool, requirements=f"Rack > {n + 1000}")
    print(f"a pass with {MOST_EXPRESSIONS} expressions that fit nowhere: first", end=" ")
    print(f"{milliseconds(lambda: pool.schedule(0.0)):.1f} ms,", end=" ")
    pool = pool_of(workers, 25)
    for n in range(MOST_EXPRESSIONS):
        submit(pool, requirements=f"Rack > {n + 1000}")
    submit(pool, tasks=10)
    print(f"with {workers:,} workers to look at: {milliseconds(lambda: pool.schedule(0.0)):.1f} ms")
    pool = pool_of(workers, 25)
    submit(pool, tasks=workers * 5)
    print(f"the pass that fills all, no rank: {milliseconds(lambda: pool.schedule(0.0)):.1f} ms")
    pool = pool_of(workers, 25)
    submit(pool, tasks=workers * 5, rank="Rack")
    print(f"the same with a rank: {milliseconds(lambda: pool.schedule(0.0)):.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)
