"""How running attempts fare: kept in memory alone, until the next word of their worker."""

from __future__ import annotations

from kestrelctl.core.attempts.table import note_stages
from kestrelctl.core.events import Staged, Using
from kestrelctl.core.handlers.presence import spoke
from kestrelctl.core.model.records import UserGone
from kestrelctl.core.model.result import CLOCK_SLACK_SECONDS
from kestrelctl.core.model.worker.use import possible_use
from kestrelctl.core.state import State


def on_used(state: State, event: Using) -> None:
    """Notes what attempts have used that the worker holds; what it says of others does not count.

    What was noted of attempts that are over goes now, and not when they end: that would be a cost
    for each task, however short.
    """
    worker = spoke(state, event.worker, event.at)
    if worker is None:
        return
    held = worker.held
    uses = {number: found for number, found in worker.uses.items() if number in held}
    for use in event.uses:
        task = held.get(use.number)
        if task is not None and task.attempt is not None:
            since = task.attempt.sent_at or task.job.submitted_at
            longest_seconds = max(0.0, event.at - since) + CLOCK_SLACK_SECONDS
            uses[use.number] = (event.at, possible_use(use, longest_seconds))
    worker.uses = uses


def on_staged(state: State, event: Staged) -> None:
    """Notes which stages attempts have begun that the worker holds."""
    worker = spoke(state, event.worker, event.at)
    if worker is not None:
        note_stages(worker, event.stages)


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
