"""What waits of the pool's own: tasks that could go at once if there were workers for them.

Guests are not among it. Neither is what waits for tokens of the pool, or behind a gate or a quota:
to that no worker would help.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.quota import Quota, counted
from kestrelctl.core.jobs.sharer import Sharer
from kestrelctl.core.jobs.tokens import TokensLeft
from kestrelctl.core.model.shape import Shape
from kestrelctl.core.scheduling.demand import Demand, Line

#: Of so many jobs the waiting tasks are counted; each further one counts as one. Who asks does so
#: many times a second.
MOST_COUNTED = 1_000


class OwnWaiting(NamedTuple):
    """Tasks of one user that wait and ask alike, at one priority.

    Attributes:
        mean_seconds: how long one is expected to run; None if nobody knows of any.
    """

    shape: Shape
    sharer: Sharer
    tasks: int
    mean_seconds: float | None


def own_waiting(demand: Demand) -> list[OwnWaiting]:
    """Counts what waits of the pool's own, in the order of the queue."""
    count = _Count(demand)
    turns = sorted((turn for turn in demand.turns() if turn.priority >= 0), key=lambda t: t.order)
    found: list[OwnWaiting] = []
    for turn in turns:
        for bit, line in turn.lines.items():
            shape = demand.shapes[bit.bit_length() - 1]
            tasks, mean_seconds = count.of(line, shape, turn.sharer)
            if tasks:
                found.append(OwnWaiting(shape, turn.sharer, tasks, mean_seconds))
    return found


class _Count:
    """Counts tasks, with what is left of tokens and quotas by those that were counted before."""

    def __init__(self, demand: Demand) -> None:
        self._tokens = TokensLeft(demand.tokens)
        self._quotas: dict[Quota, Quota] = {}
        self._looks = MOST_COUNTED

    def of(self, line: Line, shape: Shape, sharer: Sharer) -> tuple[int, float | None]:
        """How many tasks of a line could go, and how long one of them is expected to run."""
        tasks = timed = 0
        seconds = 0.0
        for _, job in islice(line, self._looks):
            n = self._bounded(takeable(job), shape, sharer)
            tasks += n
            expected = job.expected_seconds
            if expected is not None:
                timed += n
                seconds += n * expected
        beyond = len(line) - self._looks
        self._looks = max(1, self._looks - len(line))
        if beyond > 0:
            tasks += self._bounded(beyond, shape, sharer)
        return tasks, seconds / timed if timed else None

    def _bounded(self, tasks: int, shape: Shape, sharer: Sharer) -> int:
        """How many of so many tasks tokens and quotas leave; they are taken from these."""
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
