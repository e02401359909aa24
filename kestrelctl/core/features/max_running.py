"""`--max-running`: no more tasks of a job run at once than it says.

After a restart of the manager nothing more of it is handed out before workers have said what they
run of it (`core.jobs.gates`).
"""

from __future__ import annotations

from kestrelctl.core.features.feature import Feature, Must
from kestrelctl.core.jobs.job import Gate, Job
from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.state import State


def _limit(job: Job) -> int | None:
    limit = job.spec.max_running
    return None if limit is None else max(0, limit - job.running)


def _tells(job: Job, _now: float) -> Refusal:
    wanted = f"at most {job.spec.max_running}"
    return Refusal("max-running", wanted=wanted, found=f"{job.running}")


def _violations(state: State, must: Must) -> None:
    for job in state.jobs.values():
        limit, queued = job.spec.max_running, job.place is not None
        must(limit is None or job.running <= max(limit, 0) or not queued, "max_running passed")


MAX_RUNNING = Feature(
    applies=lambda spec: spec.max_running is not None,
    gate=Gate("max-running", _limit, _tells),
    violations=_violations,
)
