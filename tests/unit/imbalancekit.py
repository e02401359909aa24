"""Runs of the experiment with environments, to test what is made of them."""

from __future__ import annotations

from typing import Any

from benchkit import MACHINE

from kestrel_experiments.flock.audit import FlockAudit
from kestrel_experiments.imbalance.class_load import ImbalancePlan, Sharing
from kestrel_experiments.imbalance.result import ClassWaits, ImbalanceResult, ImbalanceRun

PLAN = ImbalancePlan(hosts=6, tasks=20, mean_seconds=2.0)


def a_run(sharing: Sharing, seed: int = 1, **changes: Any) -> ImbalanceRun:
    """One that takes 20 s if hosts are shared out for good, and else half of it."""
    static = sharing == "static"
    told: dict[str, Any] = {
        "waits": [
            ClassWaits("a", 16, 8.0 if static else 1.0, 12.0),
            ClassWaits("b", 2, 0.0 if static else 2.5, 3.0),
            ClassWaits("c", 2, 0.0, 0.0),
        ],
        "makespan_seconds": 20.0 if static else 10.0,
        "bound_seconds": 15.0,
        "utilisation": 0.4 if static else 0.8,
        "started": 0 if static else 7,
        "starting_seconds": 0.0 if static else 4.5,
        "audit": FlockAudit(tasks=20, lost=0, twice=0, attempts=20),
        "bin_seconds": 5.0,
        "busy": [6.0, 2.0],
    }
    return ImbalanceRun(sharing=sharing, seed=seed, **(told | changes))


def a_result(*runs: ImbalanceRun, **changes: Any) -> ImbalanceResult:
    return ImbalanceResult(
        machine=MACHINE, command="kestrelctl bench environments", plan=PLAN, runs=list(runs),
        **changes,
    )  # fmt: skip
