"""Records, runs and results of an experiment with a flock, to test what is made of them."""

from __future__ import annotations

from typing import Any

from benchkit import MACHINE

from kestrel_experiments.flock.audit import FlockAudit
from kestrel_experiments.flock.record import PoolRecords, RanHere, TracedTask
from kestrel_experiments.flock.result import FlockResult, FlockRun, Mode
from kestrel_experiments.flock.statistics import FlockWaits, Starts, together

SECONDS = 0.5
"""How long each task of these sleeps."""


def a_task(key: str, **changes: Any) -> TracedTask:
    """One that waited a second, ran at home, and did well."""
    told: dict[str, Any] = {
        "job_id": 1,
        "submitted_at": 100.0,
        "state": "done",
        "exit_code": 0,
        "worker": "w1@workers.a.kestrel.localhost/host",
        "started_at": 101.0,
        "wall_seconds": SECONDS,
    }
    return TracedTask(key=key, **(told | changes))


def a_pool(letter: str, *tasks: TracedTask, **changes: Any) -> PoolRecords:
    """What a pool tells that has counted each result once."""
    told: dict[str, Any] = {
        "domain": f"{letter.lower()}.kestrel.localhost",
        "accepted_results": len(tasks),
    }
    return PoolRecords(pool=letter, tasks=list(tasks), **(told | changes))


def on(machine: str, start: float, end: float, key: str, home: str = "") -> RanHere:
    """A task on a machine; `home` is the letter of the pool whose it is."""
    domain = f"{home.lower()}.kestrel.localhost" if home else ""
    return RanHere(worker=machine, started_at=start, ended_at=end, key=key, home=domain)


def waits(pool: str, *values: float, elsewhere: int = 0) -> FlockWaits:
    return FlockWaits(
        pool=pool,
        tasks=len(values),
        mean=sum(values) / len(values),
        least=min(values),
        most=max(values),
        elsewhere=elsewhere,
        makespan=1000.0,
        waits=list(values),
    )


def a_run(mode: Mode, seed: int = 1, *pools: FlockWaits, **changes: Any) -> FlockRun:
    """A run of pools A and D, if no others are given: with flocking D waits a tenth."""
    if not pools:
        share = 1.0 if mode == "without" else 0.1
        extra = 0.0 if mode == "without" else 1.5
        pools = (
            waits("A", 0.5 + extra, 1.5 + extra),
            waits("D", 100.0 * share, 500.0 * share * seed, elsewhere=1 if extra else 0),
        )
    told: dict[str, Any] = {
        "delay_ms": 0.0,
        "waits": [*pools, together(pools)],
        "audit": FlockAudit(tasks=sum(pool.tasks for pool in pools), lost=0, twice=0, attempts=4),
        "late_ms": 3.0,
    }
    if mode != "without":
        told |= {"lent": {"D": {"A": 1}}, "starts": Starts([12.0, 40.0, 90.0], [5.0])}
    return FlockRun(mode=mode, seed=seed, **(told | changes))


def a_flock_result(*runs: FlockRun, **changes: Any) -> FlockResult:
    """Two seeds without and with flocking, if no runs are given."""
    runs = runs or tuple(a_run(mode, seed) for seed in (1, 2) for mode in ("without", "with"))
    return FlockResult(machine=MACHINE, unit_seconds=0.05, runs=list(runs), **changes)
