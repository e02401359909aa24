"""What the core costs alone, without input or output: a task handed out and reported, jobs of one
task each, and jobs that wait.

    .venv/bin/python tests/bench/core.py [TASKS] [WORKERS]
    .venv/bin/python tests/bench/core.py sizes
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections.abc import Iterable

import psutil

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool

#: Attempts that a worker reports at a time, and workers that report between two scheduling passes.
REPORTED = 8
BURST = 10


class Bench:
    """A pool with workers of one processor each, driven by hand."""

    def __init__(self, workers: int) -> None:
        self.pool = Pool(Snapshot(epoch=1, secret=bytes(32), next_job_id=1, jobs=[], workers=[]))
        self.now = 1000.0
        self.names = [f"w{n}" for n in range(workers)]
        self.held: dict[str, list[tuple[int, int, int]]] = {name: [] for name in self.names}
        self.tell(ev.Reconnected(at=self.now))
        for name in self.names:
            hello = ev.Joined(at=self.now, worker=name, incarnation="1", ad=WorkerAd(), holds=[])
            self.tell(hello)

    def tell(self, event: ev.Event) -> None:
        self._do(self.pool.handle(event))

    def schedule(self) -> None:
        self._do(self.pool.schedule(self.now))

    def submit(self, tasks: int, owner: str = "ada") -> None:
        spec = JobSpec(program=Program(argv=("true",)), count=tasks)
        self.tell(ev.Submit(at=self.now, request="1", owner=owner, spec=spec))
        self.schedule()

    def _do(self, effects: Iterable[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Run):
                self.held[effect.worker].extend(
                    (number + k, job_id, index + k)
                    for number, job_id, index, n, _ in effect.spans
                    for k in range(n)
                )
            elif isinstance(effect, fx.Feed):
                self._do(self.pool.handle(effect.event))

    def report(self, name: str) -> int:
        """A worker reports some of what it has; returns how many."""
        part, self.held[name] = self.held[name][:REPORTED], self.held[name][REPORTED:]
        if part:
            results = [
                Result(number, job_id, index, Outcome.DONE, self.now, 0.0005)
                for number, job_id, index in part
            ]
            self.tell(ev.Reported(at=self.now, worker=name, results=results))
        return len(part)


def dispatch_microseconds(tasks: int, workers: int, jobs: int = 1, users: int = 1) -> float:
    """Processor time of a task from hand-out to result, that of this script included.

    Args:
        tasks: that are handed out; a million wait.
        jobs: among which these are divided; the jobs are those of so many users.
    """
    bench = Bench(workers)
    for n in range(jobs):
        bench.submit(1_000_000 // jobs, f"user{n % users}")
    gc.collect()
    gc.freeze()
    done, started = 0, time.process_time()
    while done < tasks:
        for first in range(0, workers, BURST):
            bench.now += 0.002
            done += sum(map(bench.report, bench.names[first : first + BURST]))
            bench.schedule()
    return (time.process_time() - started) / tasks * 1e6


def one_task_microseconds(jobs: int, workers: int) -> float:
    """Processor time of a job of one task, from its submission to its end; nobody waits long."""
    bench = Bench(workers)
    gc.collect()
    gc.freeze()
    started = time.process_time()
    for n in range(jobs):
        bench.now += 0.002
        bench.submit(1, f"user{n % 10}")
        if n >= workers:
            bench.report(bench.names[n % workers])
    return (time.process_time() - started) / jobs * 1e6


def queued(jobs: int, tasks: int) -> str:
    """What so many waiting jobs of so many tasks cost."""
    bench = Bench(100)
    process = psutil.Process()
    gc.collect()
    before, started = process.memory_info().rss, time.process_time()
    for _ in range(jobs):
        bench.submit(tasks)
    seconds = time.process_time() - started
    gc.collect()
    grown_mb = (process.memory_info().rss - before) / 1e6
    return f"{jobs:,} x {tasks:,} tasks: {seconds * 1000:.1f} ms, {grown_mb:.1f} MB"


def whole(workers: int, tasks: int) -> str:
    """Runs a job to its end; tells what it cost."""
    bench = Bench(workers)
    joined = psutil.Process().memory_info().rss
    bench.submit(tasks)
    gc.collect()
    gc.freeze()
    done, longest, started = 0, 0.0, time.process_time()
    while done < tasks:
        for first in range(0, workers, BURST):
            bench.now += 0.002
            began = time.perf_counter()
            done += sum(map(bench.report, bench.names[first : first + BURST]))
            bench.schedule()
            longest = max(longest, time.perf_counter() - began)
    each = (time.process_time() - started) / tasks * 1e6
    most = psutil.Process().memory_info().rss
    return (
        f"{workers:,} workers, {tasks:,} tasks: {each:.1f} us a task, longest turn "
        f"{1000 * longest:.0f} ms; {joined / 1e6:.0f} MB with all workers, "
        f"{(most - joined) / 1e6:.0f} MB for their tasks"
    )


def sizes() -> None:
    for workers, tasks in ((1_000, 100_000), (10_000, 1_000_000), (100_000, 10_000_000)):
        with multiprocessing.get_context("spawn").Pool(1) as alone:
            print(alone.apply(whole, (workers, tasks)), flush=True)


def main(tasks: int = 200_000, workers: int = 917) -> None:
    print(queued(1, 1_000_000))
    print(queued(10_000, 100))
    one = dispatch_microseconds(tasks, workers)
    many = dispatch_microseconds(tasks, workers, 1_000, 100)
    print(f"{one:.2f} us a task of one job, {many:.2f} of 1,000 jobs of 100 users")
    print(f"{one_task_microseconds(20_000, 12):.1f} us a job of one task, with 12 workers")


if __name__ == "__main__":
    if sys.argv[1:] == ["sizes"]:
        sizes()
    else:
        main(*map(int, sys.argv[1:]))
