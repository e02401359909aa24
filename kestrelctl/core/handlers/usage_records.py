"""What users have used becomes durable, so that a restarted manager goes on with it."""

from __future__ import annotations

from kestrelctl.core.model.records import UserGone
from kestrelctl.core.state import State

#: Pause between two records of a user: a manager that dies forgets no more than so much.
USAGE_RECORD_SECONDS = 60.0
#: Less than so many weighted seconds is nothing but rounding.
LEAST_RECORDED_SECONDS = 0.001


def record_usage(state: State, now: float) -> None:
    """Has the usage of each user recorded who has used something since his last record."""
    if now - state.usage_recorded_at < USAGE_RECORD_SECONDS:
        return
    state.usage_recorded_at = now
    half_life_seconds = state.config.usage_half_life_seconds
    for sharer in state.sharers.users():
        if sharer.used_since_record(now, half_life_seconds) > LEAST_RECORDED_SECONDS:
            sharer.fold(now, half_life_seconds)
            sharer.record = sharer.recorded(now, half_life_seconds)
            state.record(sharer.record)
    if state.sharers.too_many:
        with_jobs = {job.sharer for job in state.jobs.values()}
        for sharer in state.sharers.forget_idle(with_jobs, now):
            if sharer.record.usage_at:  # it was recorded
                state.record(UserGone(sharer.name))
