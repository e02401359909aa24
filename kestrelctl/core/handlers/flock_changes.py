"""What is durable of the flock changes."""

from __future__ import annotations

from kestrelctl.core.effects import Answer
from kestrelctl.core.events import ChangeFlock
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import FlockRuleGone
from kestrelctl.core.state import State


def on_change_flock(state: State, event: ChangeFlock) -> None:
    """Remembers all of it, or refuses all of it."""
    for record in event.records:
        problem = state.flock.problem_with(record)
        if problem is not None:
            code, message = problem
            hint = "kestrelctl flock policy list" if code == "not-found" else ""
            state.emit(Answer(request=event.request, error=code, message=message, hint=hint))
            return
    for record in event.records:
        state.flock.apply(record)
        state.record(record)
        if isinstance(record, FlockRule | FlockRuleGone):
            done = "set" if isinstance(record, FlockRule) else "removed"
            state.note("info", f"rule {record.name} of the flock was {done} by {event.cause}")
    for gone in state.flock.surplus():
        state.flock.apply(gone)
        state.record(gone)
    if event.request:
        state.emit(Answer(request=event.request))
