"""A simulated bench, for reports that look like real ones."""

from __future__ import annotations

import heapq
import statistics
from random import Random

from kestrelctl.bench import bounds, knee
from kestrelctl.bench.machine import this_machine
from kestrelctl.bench.result import BenchResult, BenchRun, LatencyMs, Sweep, measured_run

SPAWN_LIMIT = 2400.0


def simulated_run(
    spec: str, tasks: int, workers: int, rate: float = 1900.0, lost: int = 0
) -> BenchRun:
    """A sweep in which a manager starts at most about `rate` tasks a second on idle workers."""
    random = Random(f"{spec} {tasks} {workers}")
    sleep = bounds.parse_sleep(spec)
    idle_at = [0.0] * workers
    now, started, finished, latencies = 0.0, [], [], []
    for index in range(tasks):
        now = max(now + random.expovariate(rate), heapq.heappop(idle_at))
        latency = random.gammavariate(2.0, 0.004)
        started.append(now + latency)
        finished.append(started[-1] + sleep.seconds(index) + random.gammavariate(3.0, 0.0004))
        latencies.append(1000 * latency)
        heapq.heappush(idle_at, finished[-1] + 0.002)
    return measured_run(
        sleep=sleep,
        executor="process",
        tasks=tasks,
        workers=workers,
        makespan_seconds=max(finished) + 0.03,
        started_at=started,
        finished_at=finished,
        latency_ms=LatencyMs(p50=statistics.median(latencies), p99=max(latencies)),
        lost=lost,
        duplicates=0,
        manager_rss_mb=140.0,
        server_cpu_seconds=tasks * 0.00008,
        manager_cpu_seconds=tasks * 0.00011,
        worker_cpu_seconds=tasks * 0.0003,
    )


def simulated_bench(tasks: int, workers: int) -> BenchResult:
    runs = [simulated_run(spec, tasks, workers) for spec in ("0", "1", "0-10", "10")]
    command = f"kestrelctl bench --jobs {tasks} --workers {workers}"
    return BenchResult(this_machine("0.12.3"), SPAWN_LIMIT, runs, command)


def simulated_grid() -> BenchResult:
    """A sweep over lengths and workers, at about 1,900 tasks a second."""
    runs = [
        simulated_run(spec, workers * (5 if spec in ("1", "10") else 50), workers)
        for workers in (10, 100, 500, 917)
        for spec in ("0", "0.01", "0.1", "1", "10")
    ]
    knees = [curve.knee for curve in knee.curves(runs)]
    sweep = Sweep(20.0, knees)
    return BenchResult(this_machine("0.12.3"), SPAWN_LIMIT, runs, "kestrelctl bench --sweep", sweep)
