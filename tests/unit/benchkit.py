"""Runs and results to test reports, tables and comparisons with."""

from __future__ import annotations

from typing import Any

import msgspec

from kestrelctl.bench import bounds, knee
from kestrelctl.bench.machine import BenchMachine
from kestrelctl.bench.result import BenchResult, BenchRun, LatencyMs, Sweep, measured_run

MACHINE = BenchMachine(
    2, "Some CPU", 24_000, "Linux 6.1", "3.11.7", "0.12.3", "0.1.0", "2026-01-01"
)


def a_run(sleep: str = "1", **changes: Any) -> BenchRun:
    """500 tasks on 10 workers, at half of what the machine could do."""
    sleep_time = bounds.parse_sleep(sleep)
    tasks, workers = changes.get("tasks", 500), changes.get("workers", 10)
    bound = tasks * sleep_time.shortest / workers
    measured: dict[str, Any] = {
        "executor": "process",
        "tasks": 500,
        "workers": 10,
        "makespan_seconds": 2 * bound or 0.5,
        "started_at": [0.1] * 500,
        "finished_at": [0.2] * 500,
        "latency_ms": LatencyMs(p50=1.0, p99=9.0),
        "lost": 0,
        "duplicates": 0,
        "manager_rss_mb": 80.0,
        "server_cpu_seconds": 1.0,
        "manager_cpu_seconds": 2.0,
        "worker_cpu_seconds": 3.0,
    }
    return measured_run(sleep=sleep_time, **(measured | changes))


def a_result(*runs: BenchRun, **changes: Any) -> BenchResult:
    result = BenchResult(MACHINE, 2000.0, list(runs), command="kestrelctl bench sweep")
    return msgspec.structs.replace(result, **changes)


def a_cell(sleep: str, workers: int, utilisation: float) -> BenchRun:
    """A run of a sweep in which dispatch does 1,000 tasks a second."""
    bound = 500 * bounds.parse_sleep(sleep).mean / workers
    makespan = bound / utilisation if bound else 0.5
    return a_run(sleep, workers=workers, makespan_seconds=makespan)


def a_sweep() -> BenchResult:
    """10 and 100 workers: knees at 10 and 100 ms."""
    runs = [
        a_cell("0", 10, 0.0),
        a_cell("0.01", 10, 0.25),
        a_cell("0.1", 10, 0.75),
        a_cell("1", 10, 0.99),
        a_cell("0", 100, 0.0),
        a_cell("0.01", 100, 0.05),
        a_cell("0.1", 100, 0.45),
        a_cell("1", 100, 0.95),
    ]
    return a_sweep_of(*runs)


def a_sweep_of(*runs: BenchRun) -> BenchResult:
    """A sweep with these cells."""
    knees = [curve.knee for curve in knee.curves(runs)]
    return a_result(*runs, sweep=Sweep(20.0, knees))
