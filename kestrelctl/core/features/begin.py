"""`--begin`: nothing of a job starts before a moment (sbatch has `--begin`, too)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kestrelctl.core.features.feature import Feature, Must
from kestrelctl.core.jobs.job import Gate, Job
from kestrelctl.core.model.job.ending_rules import MOST_DEADLINE_SECONDS
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.state import Refused, State


def _refuses(state: State, spec: JobSpec, submitted_at: float) -> Refused | None:
    left_seconds = BEGIN.left_seconds(state, spec, submitted_at)
    if left_seconds is None:
        return None
    if not (math.isfinite(left_seconds) and left_seconds <= MOST_DEADLINE_SECONDS):
        return "usage", "a job begins within ten years", "name a moment before"
    begins_at, deadline = spec.begins_at(submitted_at), spec.deadline(submitted_at)
    if begins_at is not None and deadline is not None and deadline <= begins_at:
        return "usage", "the job would be stopped before it begins", "give it a later --deadline"
    return None


def _enters(state: State, job: Job, _ended: Mapping[int, str]) -> None:
    """Removes the gate if the moment is over already."""
    left_seconds = BEGIN.left_seconds(state, job.spec, job.submitted_at)
    if left_seconds is not None and left_seconds <= 0:
        job.gates = tuple(gate for gate in job.gates if gate is not BEGIN.gate)


def _comes(state: State, job: Job) -> None:
    if BEGIN.gate in job.gates:
        job.gates = tuple(gate for gate in job.gates if gate is not BEGIN.gate)
        for line in job.lines():
            line.waits_since = state.at  # nobody let it starve
        state.touch_job(job)


def _tells(job: Job, now: float) -> Refusal:
    left_seconds = max(0.0, (job.spec.begins_at(job.submitted_at) or now) - now)
    return Refusal("begin", found=f"in {left_seconds:,.0f} s")


def _violations(state: State, must: Must) -> None:
    for job in (job for job in state.jobs.values() if BEGIN.gate in job.gates):
        must(state.alarms.has(job.id), "job %s never begins", job.id)
        queued = any(line.place is not None for line in job.lines())
        must(not queued, "job %s is in the queue before it begins", job.id)


BEGIN = Feature(
    applies=lambda spec: spec.begin is not None,
    gate=Gate("begin", lambda _job: 0, _tells),
    moment=JobSpec.begins_at,
    is_named=lambda spec: spec.begin is not None and spec.begin.at is not None,
    refuses=_refuses,
    enters=_enters,
    comes=_comes,
    violations=_violations,
)
