"""Counts the pool's own tasks that wait and could go at once if there were workers for them.

Tasks of guests are not counted. Nor are those that wait for tokens of the pool, or behind a gate or
a quota: no worker would help them.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.jobs.quota import Quota, counted
from kestrelctl.core.jobs.tokens import TokensLeft
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.scheduling.demand import Demand, Line

#: The most jobs whose waiting tasks are counted; each further job counts as one task. This is asked
#: for many times a second.
MOST_COUNTED = 1_000
_NEVER = float("-inf")


class OwnWaiting(NamedTuple):
    """Tasks of one user that wait and ask alike, at one priority.

    Attributes:
        old: how many of them are of jobs that have waited since `old_since`, or for longer.
    """

    shape: Shape
    sharer: Sharer
    tasks: int
    old: int


def own_waiting(demand: Demand, old_since: float = _NEVER) -> list[OwnWaiting]:
    """Counts what waits of the pool's own, in the order of the queue.

    Args:
        old_since: what has waited since then, or for longer, is old.
    """
    if not demand:
        return []
    count = _Count(demand, old_since)
    turns = sorted((turn for turn in demand.turns() if turn.priority >= 0), key=lambda t: t.order)
    found: list[OwnWaiting] = []
    for turn in turns:
        for bit, line in turn.lines.items():
            shape = demand.shapes[bit.bit_length() - 1]
            tasks, old = count.of(line, shape, turn.sharer)
            if tasks:
                found.append(OwnWaiting(shape, turn.sharer, tasks, old))
    return found


class _Count:
    """Counts tasks, with what is left of tokens and quotas by those that were counted before."""

    def __init__(self, demand: Demand, old_since: float) -> None:
        self._old_since = old_since
        self._tokens = TokensLeft(demand.tokens)
        self._quotas: dict[Quota, Quota] = {}
        self._looks = MOST_COUNTED

    def of(self, line: Line, shape: Shape, sharer: Sharer) -> tuple[int, int]:
        """Counts the tasks of a line that could go, and those that are old as far as it looked."""
        counts = [job.takeable for _, job in islice(line, self._looks)]
        beyond = max(0, len(line) - self._looks)
        old = 0
        if self._old_since > _NEVER:
            since = self._old_since
            jobs = (job for _, job in islice(line, self._looks))
            old = sum([job.takeable for job in jobs if job.waits_since <= since])
        self._looks = max(1, self._looks - len(line))
        if shape.span > 1:  # all tasks of a job or none
            tasks = sum(self._bounded(n, shape, sharer) for n in (*counts, beyond))
        else:
            tasks = self._bounded(sum(counts) + beyond, shape, sharer)
        return tasks, min(tasks, old)

    def _bounded(self, tasks: int, shape: Shape, sharer: Sharer) -> int:
        """Tells how many of these tasks tokens and quotas allow; takes what they need from both."""
        if not tasks or not (shape.tokens or sharer.quotas):
            return tasks
        if shape.tokens:
            tasks = min(tasks, self._tokens.times_free(shape.tokens))
        amounts = counted(shape.request, shape.tokens)
        held = [self._quotas.setdefault(quota, quota.copy()) for quota in sharer.quotas]
        for quota in held:
            tasks = min(tasks, quota.room(amounts, tasks))
        if tasks < shape.span:
            return 0
        if shape.tokens:
            self._tokens.give(shape.tokens, tasks)
        for quota in held:
            quota.take(amounts, tasks)
        return tasks
