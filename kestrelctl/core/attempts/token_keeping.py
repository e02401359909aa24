"""Keeps tokens of the pool for jobs that starve for them: the only place where they are kept."""

from __future__ import annotations

from kestrelctl.core.jobs.tokens import KeptTokens
from kestrelctl.core.scheduling.token_starvation import keeps_in_vain, starving_for_tokens
from kestrelctl.core.state import State


def keep_tokens(state: State, now: float) -> None:
    """Lets tokens go that are kept in vain, and keeps others for who has waited longest.

    To be called before `keep_workers`, which says when the next look is.
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
