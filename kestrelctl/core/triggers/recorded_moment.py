"""The state of a pool at a moment, as it is kept for the tests of triggers."""

from __future__ import annotations

import msgspec

from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.core.properties.summary import PropertySummary, summary_of
from kestrelctl.core.triggers.expression import WORKERS_IN_A_STEP, TableView
from kestrelctl.core.triggers.pool_views import (
    PoolSnapshot,
    WatchedEnvironments,
    WatchedGroup,
    WatchedQueue,
    WatchedUnmet,
    WatchedWorker,
)


class MomentRecorded(msgspec.Struct, frozen=True):
    """A moment, as the store keeps it.

    Attributes:
        number: the higher the later; none is used twice.
        at: seconds since the epoch.
        packed: a `RecordedMoment`, as its writer has packed it.
    """

    number: int
    at: float
    packed: bytes


class MomentsDropped(msgspec.Struct, frozen=True):
    """The moments up to that number are kept no longer."""

    up_to: int


class RecordedMoment(msgspec.Struct, frozen=True, kw_only=True):
    """All that a snapshot shows, without what can be added up again.

    Attributes:
        at: seconds since the epoch.
        groups: names of groups of workers; each worker says in which it is.
    """

    at: float
    workers: list[WatchedWorker]
    groups: list[str]
    queue: WatchedQueue
    unmet: WatchedUnmet
    environments: dict[str, WatchedEnvironments]

    def snapshot(self) -> PoolSnapshot:
        """The pool as it was then."""
        return PoolSnapshot(
            at=self.at,
            workers=self.workers,
            groups=TableView(self.groups, self._group, len(self.workers) // WORKERS_IN_A_STEP),
            properties=self._sums(self.workers),
            queue=self.queue,
            unmet=self.unmet,
            environments=self.environments,
        )

    def _group(self, name: str) -> WatchedGroup:
        members = [each for each in self.workers if name in each.groups]
        return WatchedGroup(workers=members, properties=self._sums(members))

    def _sums(self, workers: list[WatchedWorker]) -> TableView[PropertySummary]:
        names = sorted({name for each in self.workers for name in each.properties})

        def summary(name: str) -> PropertySummary:
            values = (each.properties.get(name) for each in workers)
            return summary_of(PropertyReading(self.at, value) for value in values)

        return TableView(names, summary, len(workers) // WORKERS_IN_A_STEP)


def recorded(snapshot: PoolSnapshot) -> RecordedMoment:
    """Takes from a snapshot what is kept of it."""
    return RecordedMoment(
        at=snapshot.at,
        workers=snapshot.workers,
        groups=list(snapshot.groups),
        queue=snapshot.queue,
        unmet=snapshot.unmet,
        environments=dict(snapshot.environments),
    )
