"""Counts anew what users and groups have at workers, and reacts when some of it comes back."""

from __future__ import annotations

from collections.abc import Collection

from kestrelctl.core.jobs.quota import Quota, counted
from kestrelctl.core.state import State


def recount(state: State) -> None:
    """Counts what everybody has at workers, after bounds were set, and looks at workers again for
    all that waits.
    """
    for worker in state.workers.values():
        for task in worker.held.values():
            for quota in task.job.sharer.quotas:
                attempt = task.attempt
                if attempt is not None:
                    quota.take(counted(attempt.claim.amounts, attempt.tokens), 1)
    for shape in state.demand.waiting_shapes():
        state.supply.wake_for(shape)


def ease(state: State, eased: Collection[Quota]) -> None:
    """Looks again at workers for what these bounds held back: they hold back less now."""
    shapes = 0
    for turn in state.demand.turns():
        if any(quota in eased for quota in turn.sharer.quotas):
            shapes |= turn.shapes
    for quota in eased:
        quota.held_back = False
    for shape in state.demand.shapes:
        if shape.bit & shapes:
            state.supply.wake_for(shape)
