"""Finds jobs that starve for tokens of the pool, and tells when these need not be kept. Pure.

A task that asks for several tokens, or for several sorts, gets none as long as tasks that ask for
less take each one that comes free. So tokens are kept for it, as a worker is (`reservation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kestrelctl.core.jobs.gates import passing
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.tokens import KeptTokens
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.supply import Supply


def starving_for_tokens(
    demand: Demand, supply: Supply, jobs: Iterable[Job], config: Config, now: float
) -> list[Job]:
    """Jobs that have got nothing for `starving_seconds` for want of tokens; the longest first.

    Among those that ask alike, the order of the queue says who is next: nothing is kept for them.
    Nor is anything kept if copies of services hold so much that there is never enough.

    Args:
        jobs: all that have not ended.
    """
    if not demand.of_tokens:
        return []
    asking = [
        job
        for job in demand.jobs()
        if job.shape.tokens
        and now - _served_at(job) >= config.starving_seconds
        and demand.tokens.times_free(job.shape.tokens) < job.shape.span
    ]
    if not asking:
        return []
    for_good = _held_for_good(jobs)
    found = [
        job
        for job in asking
        if _could_have(demand, job.shape, for_good)
        and any(_goes_by(other, job.shape) for other in demand.of_tokens)
        and _may_have(job, demand, supply)
    ]
    return sorted(found, key=_served_at)


def keeps_in_vain(kept: KeptTokens, demand: Demand, supply: Supply) -> bool:
    """Whether a job has got something since, or should not have its tokens kept any more."""
    job = kept.job
    return (
        job.place is None
        or job.served_at >= kept.since
        or job.shape.tokens is not kept.wanted
        or not _could_have(demand, job.shape, {})
        or not _may_have(job, demand, supply)
    )


def _served_at(job: Job) -> float:
    """The moment since which a job waits for its first, or next, task to be handed out."""
    return max(job.waits_since, job.served_at)


def _could_have(demand: Demand, shape: Shape, for_good: Amounts) -> bool:
    """Whether there are as many tokens as it asks for, but for those that never come back."""
    total = demand.tokens.total
    return all(total(name) - for_good.get(name, 0) >= n for name, n in _together(shape).items())


def _may_have(job: Job, demand: Demand, supply: Supply) -> bool:
    """Whether nothing but tokens is in its way: no bound, no want of a worker that could run it,
    and nobody of a higher priority who asks for these tokens, too.
    """
    if min(passing(job)[0], _able(job.shape, demand, supply)) < job.shape.span:
        return False
    return not any(
        other.tokens.keys() & job.shape.tokens.keys()
        and _could_have(demand, other, {})
        and _able(other, demand, supply) >= other.span
        for other in _before(job, demand)
    )


def _able(shape: Shape, demand: Demand, supply: Supply) -> int:
    """Counts the workers online that could run a task of a shape that waits."""
    return supply.able(demand.shapes, demand.waiting, shape.bit)


def _before(job: Job, demand: Demand) -> Iterator[Shape]:
    """Finds the shapes that ask for tokens and wait with a higher priority."""
    for turn in demand.turns():
        if turn.priority > job.precedence:
            yield from (shape for shape in demand.of_tokens if shape.bit & turn.shapes)


def _goes_by(other: Shape, shape: Shape) -> bool:
    """Whether tasks of another shape can take tokens while there are too few for this one."""
    theirs, wanted = _together(other), _together(shape)
    return bool(theirs.keys() & wanted.keys()) and any(
        theirs.get(name, 0) < n for name, n in wanted.items()
    )


def _together(shape: Shape) -> Amounts:
    """The tokens for the tasks of a shape that start together: as many as the job spans workers."""
    return {name: n * shape.span for name, n in shape.tokens.items()}


def _held_for_good(jobs: Iterable[Job]) -> Amounts:
    """Sums the tokens that copies of services hold: copies never end by themselves."""
    found: Amounts = {}
    for job in jobs:
        if job.spec.service:
            for name, n in job.shape.tokens.items():
                found[name] = found.get(name, 0) + n * job.running
    return found
