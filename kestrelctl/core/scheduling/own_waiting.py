"""What waits of the pool's own: tasks that could go at once if there were workers for them.

Guests are not among it. Neither is what waits for tokens of the pool, or behind a gate or a quota:
to that no worker would help.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.jobs.quota import Quota, counted
from kestrelctl.core.jobs.tokens import TokensLeft
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.scheduling.demand import Demand, Line

#: Of so many jobs the waiting tasks are counted; each further one counts as one. Who asks does so
#: many times a second.
MOST_COUNTED = 1_000
_NEVER = float("-inf")


class OwnWaiting(NamedTuple):
    """Tasks of one user that wait and ask alike, at one priority.

    Attributes:
        old: how many of them are of jobs that have waited since a moment before.
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
        """How many tasks of a line could go, and how many of those that were looked at are old."""
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
        """How many of so many tasks tokens and quotas leave; they are taken from these."""
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
