"""All features of jobs, in the order that counts, and the moments at which they are asked."""

from __future__ import annotations

from collections.abc import Mapping

from kestrelctl.core.features.after import AFTER
from kestrelctl.core.features.begin import BEGIN
from kestrelctl.core.features.deadline import DEADLINES
from kestrelctl.core.features.feature import Must
from kestrelctl.core.features.hold import HOLD
from kestrelctl.core.features.max_running import MAX_RUNNING
from kestrelctl.core.features.stop_after import STOP_AFTER
from kestrelctl.core.features.stored_bytes import STORED_BYTES
from kestrelctl.core.jobs.job import Gate, Job, Moments
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.state import Refused, State

#: People are told of the first gate that lets the fewest tasks pass.
FEATURES = (DEADLINES, HOLD, AFTER, BEGIN, STORED_BYTES, MAX_RUNNING, STOP_AFTER)
#: Those of them that may hold back what waits.
GATES = tuple(feature.gate for feature in FEATURES if feature.gate is not None)


def features_of(spec: JobSpec) -> tuple[tuple[Gate, ...], Moments]:
    """The gates of a job with such a spec, and the functions that look at it after each change."""
    found = [each for each in FEATURES if each.applies is None or each.applies(spec)]
    gates = tuple(each.gate for each in found if each.gate is not None)
    return gates, tuple(each.changed for each in found if each.changed is not None)


def why_refused(state: State, spec: JobSpec, submitted_at: float) -> Refused | None:
    """Tells why a job with such a spec may not come in; None if it may."""
    asked = (each.refuses(state, spec, submitted_at) for each in FEATURES if each.refuses)
    return next((refused for refused in asked if refused is not None), None)


def enter(state: State, job: Job, ended: Mapping[int, str]) -> None:
    """Tells all features that a job is there, and sets the alarms of its moments.

    Args:
        ended: the final states of jobs that it names and that are not active.
    """
    for place, feature in enumerate(FEATURES):
        moment = feature.moment and feature.moment(job.spec, job.submitted_at)
        if moment is not None:
            named = feature.by_machine_clock(state, job.spec, job.submitted_at)
            state.alarms.add((moment, job.id, place), named=named)
        if feature.enters is not None:
            feature.enters(state, job, ended)


def tell_submitted(state: State, job: Job) -> None:
    """Tells all features that a job was submitted."""
    for feature in FEATURES:
        if feature.submitted is not None:
            feature.submitted(state, job)


def tell_stored(state: State, job: Job) -> None:
    """Tells all features that a job is durable now."""
    for feature in FEATURES:
        if feature.stored is not None:
            feature.stored(state, job)


def tell_ended(state: State, job: Job) -> None:
    """Tells all features that the end of a job is durable now."""
    for feature in FEATURES:
        if feature.ended is not None:
            feature.ended(state, job)


def tell_reconnected(state: State) -> None:
    """Tells all features that the manager is connected."""
    for feature in FEATURES:
        if feature.reconnected is not None:
            feature.reconnected(state)


def tell_time(state: State, now: float) -> None:
    """Tells features of moments that have come, and all of them that time has passed."""
    while (alarm := state.alarms.take_due(now)) is not None:
        _, job_id, place = alarm
        job, comes = state.jobs.get(job_id), FEATURES[place].comes
        if job is not None and comes is not None:
            comes(state, job)
    for feature in FEATURES:
        if feature.due is not None:
            feature.due(state, now)


def next_due(state: State) -> list[float]:
    """The moments at which something becomes due by itself, in seconds since the epoch."""
    asked = [each.next_due(state) for each in FEATURES if each.next_due is not None]
    asked.append(state.alarms.next_due())
    return [moment for moment in asked if moment is not None]


def feature_violations(state: State, must: Must) -> None:
    """Checks what must be true of each feature in the state."""
    for feature in FEATURES:
        if feature.violations is not None:
            feature.violations(state, must)
