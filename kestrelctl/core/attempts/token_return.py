"""Tokens of the pool came back: workers are looked at again for what waits for them."""

from __future__ import annotations

from collections.abc import Mapping

from kestrelctl.core.members.availability import startable
from kestrelctl.core.model.shape import Shape
from kestrelctl.core.scheduling.ladder import refusal
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.state import State


def wake_for_tokens(state: State, before: Mapping[str, int]) -> None:
    """Wakes workers for what there were not tokens enough for.

    Args:
        before: how many of those that came back had been free.
    """
    shapes = state.demand.waiting_shapes()
    waiting = sum(shape.bit for shape in shapes)
    for shape in shapes:
        wanted = shape.tokens
        if any(before.get(name, n) < n for name, n in wanted.items()):
            if shape.rank:
                state.supply.wake_for(shape)  # It may prefer any of them.
            else:
                _wake(state, shape, waiting, state.tokens.times_free(wanted))


def _wake(state: State, shape: Shape, waiting: int, attempts: int) -> None:
    """Wakes workers that have room for so many together, the least flexible first, as in a plan.

    A token comes back with each task that ends: if all that idle were woken each time, a large pool
    would look at nothing else.
    """
    known = state.demand.shapes
    classes = state.supply.classes()
    for supply in sorted(classes, key=lambda each: each.usable(known, waiting).bit_count()):
        terms = supply.terms(shape) if supply.parked and attempts > 0 else None
        if not isinstance(terms, Terms):
            continue
        for worker in list(supply.parked.values()):
            if attempts <= 0:
                return
            room = startable(terms.claim, worker.free, worker.queued)
            for_others = worker.kept_for is not None and worker.kept_for.shape is not shape
            if room and not for_others and refusal(worker, supply, shape, state.at) is None:
                state.supply.wake(worker)
                attempts -= room
