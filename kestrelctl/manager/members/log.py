"""Makes events of what the core says of workers, durable with the commit that it goes into."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kestrelctl.core.effects import Announcement, Effect, MemberChanged, MembersHeard
from kestrelctl.core.members.worker_groups import WorkerGroups
from kestrelctl.core.membership.event import MOST_REASON_CHARACTERS, MembershipEvent
from kestrelctl.core.membership.event_records import EventsDropped
from kestrelctl.core.membership.roll import Roll
from kestrelctl.core.model.wording import one_line
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.store.port import Store, StoreRecord

#: The most events that are kept.
MOST_EVENTS = 100_000


class MemberEvents(Announcement, frozen=True, kw_only=True):
    """Announces to whoever listens that these events are durable.

    Attributes:
        members: for each event, the ad of its worker; None if nobody knows it any more.
    """

    events: tuple[MembershipEvent, ...]
    members: tuple[WorkerAd | None, ...]


class MemberLog:
    """The log of what became of workers.

    Args:
        groups: the groups of workers, as they are at any moment.
        write: puts records into the next commit.
        after: does something once all that was written so far is durable.

    Attributes:
        on_event: called with each event, and what its worker says of itself, before it is durable:
            what it has written goes into the same commit.
    """

    def __init__(
        self,
        store: Store,
        groups: WorkerGroups,
        write: Callable[[Sequence[StoreRecord]], None],
        after: Callable[[Effect], None],
    ) -> None:
        self._store = store
        self._write = write
        self._after = after
        self.on_event: Callable[[MembershipEvent, WorkerAd | None], None] = lambda event, ad: None
        self._roll = Roll(store.members())
        self._last = store.last_member_event()
        self._groups = groups

    @property
    def last(self) -> int:
        """The number of the latest event."""
        return self._last

    def on_changed(self, change: MemberChanged) -> None:
        """Takes in what the core says of what became of a worker."""
        if self._roll.takes(change.kind, change.worker):
            self._add(change.at, change.kind, change.worker, change.ad, change.reason)

    def on_heard(self, heard: MembersHeard) -> None:
        """Notes that workers that were there and have not come back are gone."""
        for worker in self._roll.present:
            if worker not in heard.there:
                self._roll.takes("failed", worker)
                ad = heard.away.get(worker)
                self._add(heard.at, "failed", worker, ad, "it did not come back")

    def _add(self, at: float, kind: str, worker: str, ad: WorkerAd | None, reason: str) -> None:
        self._last += 1
        event = MembershipEvent(
            number=self._last,
            at=at,
            kind=kind,
            worker=worker,
            groups=self._groups.of(worker, ad or WorkerAd()),
            reason=one_line(reason)[:MOST_REASON_CHARACTERS],
        )
        self._write([event])
        self.on_event(event, ad)
        self._after(MemberEvents(events=(event,), members=(ad,)))

    async def tidy(self, now: float, kept_seconds: float) -> bool:
        """Has events deleted that are too old or too many, some at a time.

        Returns:
            Whether there was anything to delete.
        """
        before, up_to = now - kept_seconds, self._last - MOST_EVENTS
        oldest = await self._store.ask(lambda read: read.member_events(limit=2))
        if len(oldest) < 2 or (oldest[0].at >= before and oldest[0].number > up_to):
            return False
        self._write([EventsDropped(before, up_to)])
        return True
