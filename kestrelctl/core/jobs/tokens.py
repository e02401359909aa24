"""Tokens: assets that belong to the whole pool, such as licences or connections to a database.

No worker has them. An attempt that asks for some holds them from its hand-out until its end, also
while it waits at a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.records import TokenRecord
from kestrelctl.core.model.worker.assets import MILLI, Amounts
from kestrelctl.core.model.worker.claim import UNBOUNDED


class KeptTokens:
    """Tokens that nobody else gets until there are enough for a task of a job.

    Args:
        job: the one for which they are kept; others of its shape may take them, too.
        since: seconds since the epoch.

    Attributes:
        wanted: how much of each sort a task wants; the very object that the job's shape has.
        amounts: how much of each sort is kept: for a task, or for all that start together.
    """

    __slots__ = ("amounts", "job", "since", "wanted")

    def __init__(self, job: Job, since: float) -> None:
        self.job = job
        self.since = since
        self.wanted = job.shape.tokens
        self.amounts = {name: n * job.shape.span for name, n in self.wanted.items()}


class Tokens:
    """The books of a pool's tokens, in thousandths. Only `core.attempts` writes what is held.

    Attributes:
        settled: whether it is known who holds some. It is not from a restart of the manager until
            its workers have spoken: what the store says may lag behind what had been handed out,
            so until then none are free.
        kept: name of a sort -> the tokens of it that are kept, for one job at most. A job for which
            some are kept has all sorts kept that it wants: so nobody waits for what another waiter
            keeps.
    """

    def __init__(self) -> None:
        self.settled = True
        self.kept: dict[str, KeptTokens] = {}
        self._totals: Amounts = {}
        self._held: Amounts = {}

    def __contains__(self, name: object) -> bool:
        return name in self._totals

    @property
    def names(self) -> Collection[str]:
        """The names of the assets of which the pool has tokens."""
        return self._totals.keys()

    @property
    def held(self) -> Mapping[str, int]:
        """The tokens that attempts hold, also of sorts that the pool has no more; without zeros."""
        return self._held

    def put(self, record: TokenRecord) -> None:
        """Sets how many there are of one sort. Attempts that hold more keep them."""
        self._totals[record.name] = record.total * MILLI

    def remove(self, name: str) -> None:
        """Forgets that the pool has such tokens. Attempts that hold some keep them to their end."""
        del self._totals[name]

    def total(self, name: str) -> int:
        """The whole amount of one sort; 0 if there is no such sort."""
        return self._totals.get(name, 0)

    def free(self, name: str, wanted: Amounts | None = None) -> int:
        """The amount of one sort that may be handed out now.

        Args:
            wanted: what a shape asks for, if the question is about one: what is kept for it is free
                for it.
        """
        if not self.settled:
            return 0
        left = self.total(name) - self._held.get(name, 0)
        kept = self.kept.get(name)
        if kept is not None and kept.wanted is not wanted:
            left -= kept.amounts[name]
        return max(0, left)

    def times_free(self, wanted: Amounts) -> int:
        """Counts the attempts that could have these tokens now, each as much as `wanted`."""
        if not wanted:
            return UNBOUNDED
        return min((self.free(name, wanted) // n for name, n in wanted.items()), default=UNBOUNDED)

    def hold(self, wanted: Amounts, attempts: int) -> None:
        """Counts so much as held by each of these attempts."""
        for name, n in wanted.items():
            self._held[name] = self._held.get(name, 0) + n * attempts

    def give_back(self, wanted: Amounts) -> None:
        """Counts what an attempt held as held no more."""
        for name, n in wanted.items():
            left = self._held[name] - n
            if left:
                self._held[name] = left
            else:
                del self._held[name]


class TokensLeft:
    """The free tokens of a pool, less those that a plan or a count has given away."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._given: Amounts = {}
        self._given_of_kept: Amounts = {}

    def times_free(self, wanted: Amounts) -> int:
        """Counts the attempts that could still have these tokens, each as much as `wanted`."""
        if not wanted:
            return UNBOUNDED
        return min((self._free(name, wanted) // n for name, n in wanted.items()), default=UNBOUNDED)

    def _free(self, name: str, wanted: Amounts) -> int:
        left = self._tokens.free(name, wanted) - self._given.get(name, 0)
        kept = self._tokens.kept.get(name)
        if kept is not None and kept.wanted is not wanted:
            # Kept tokens that were given to the job they are kept for need not be kept any more.
            left += min(self._given_of_kept.get(name, 0), kept.amounts[name])
        return max(0, left)

    def give(self, wanted: Amounts, attempts: int) -> None:
        """Counts so much as given to each of so many attempts."""
        for name, n in wanted.items():
            self._given[name] = self._given.get(name, 0) + n * attempts
            kept = self._tokens.kept.get(name)
            if kept is not None and kept.wanted is wanted:
                self._given_of_kept[name] = self._given_of_kept.get(name, 0) + n * attempts
