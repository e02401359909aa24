"""Looks again at workers, when tokens of the pool came back, for what waits for these.

A token comes back with each task that ends. If all idle workers were woken each time, a large pool
would look at nothing else; so at first only as many are woken as can take what the tokens are
enough for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kestrelctl.core.attempts.token_starvation import keeps_in_vain, starving_for_tokens
from kestrelctl.core.jobs.tokens import KeptTokens
from kestrelctl.core.members.availability import startable
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.scheduling.ladder import refusal
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.state import State


def keep_tokens(state: State, now: float) -> None:
    """Lets tokens go that are kept in vain, and keeps others for the jobs that wait longest.

    It has to be called before `keep_workers`, which says when the next look is.
    """
    tokens, demand, supply = state.tokens, state.demand, state.supply
    for kept in {id(each): each for each in tokens.kept.values()}.values() if tokens.kept else ():
        if keeps_in_vain(kept, demand, supply):
            state.touch_tokens(kept.wanted)
            for name in kept.wanted:
                del tokens.kept[name]
    if now < state.next_starving_at or not tokens.settled:
        return
    for job in starving_for_tokens(demand, supply, state.jobs.values(), state.config, now):
        if not job.shape.tokens.keys() & tokens.kept.keys():
            tokens.kept.update(dict.fromkeys(job.shape.tokens, KeptTokens(job, now)))


def take_lacking(state: State) -> list[Shape]:
    """Takes the waiting shapes that had too few tokens at the last plan and may have enough now."""
    before, state.touched_tokens = state.touched_tokens, {}
    if not before:
        return []
    return [
        shape
        for shape in state.demand.waiting_shapes()
        if any(before.get(name, n) < n * shape.span for name, n in shape.tokens.items())
    ]


def wake_some(state: State, lacking: Iterable[Shape]) -> None:
    """Wakes workers that have room for as many of each shape as there are tokens for."""
    for shape in lacking:
        if shape.rank:
            state.supply.wake_for(shape)  # It may prefer any of them.
            continue
        attempts = state.tokens.times_free(shape.tokens)
        found: list[Worker] = []
        for worker, room in _able(state, shape) if attempts else ():
            found.append(worker)
            attempts -= room
            if attempts <= 0:
                break
        for worker in found:
            state.supply.wake(worker)


def wake_rest(state: State, lacking: Collection[Shape]) -> bool:
    """Wakes all others for shapes that still wait though there are tokens: those that were woken
    got something else.

    Returns:
        Whether there are any.
    """
    woken = False
    for shape in state.demand.waiting_shapes() if lacking else ():
        if shape not in lacking:
            continue
        if state.tokens.times_free(shape.tokens) and next(_able(state, shape), None) is not None:
            state.supply.wake_for(shape)
            woken = True
    return woken


def _able(state: State, shape: Shape) -> Iterator[tuple[Worker, int]]:
    """Workers that were set aside and have room now, with how much; the least flexible first."""
    known = state.demand.shapes
    waiting = state.demand.waiting
    classes = state.supply.present()
    for supply in sorted(classes, key=lambda each: each.usable(known, waiting).bit_count()):
        terms = supply.terms(shape) if supply.parked else None
        if not isinstance(terms, Terms):
            continue
        for worker in supply.parked.values():
            room = startable(terms.claim, worker.free, worker.queued)
            for_others = worker.kept_for is not None and worker.kept_for.shape is not shape
            if room and not for_others and refusal(worker, supply, shape, state.at) is None:
                yield worker, room
