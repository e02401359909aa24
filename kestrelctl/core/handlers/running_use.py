"""How running attempts fare: kept in memory alone, until the next word of their worker."""

from __future__ import annotations

from kestrelctl.core.attempts.book import note_stages
from kestrelctl.core.events import Staged, Using
from kestrelctl.core.handlers.presence import spoke
from kestrelctl.core.model.result import CLOCK_SLACK_SECONDS
from kestrelctl.core.model.use import possible_use
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
