"""Events in the membership of the pool, and queries for them."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.member_change import MEMBER_KINDS
from kestrelctl.core.model.names import fits
from kestrelctl.core.model.numbers import PoolMoment
from kestrelctl.errors import UsageError

#: A worker may give any reason; so much of it is kept.
MOST_REASON_CHARACTERS = 300


class MembershipEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event in the life of a worker.

    Attributes:
        number: the higher the later; none is used twice.
        at: seconds since the epoch, by the manager's clock.
        kind: one of `MEMBER_KINDS`.
        worker: its address.
        groups: the groups of workers that it was in at that moment, by name.
        reason: why, for people; empty if there is nothing to say.
    """

    number: int
    at: PoolMoment
    kind: str
    worker: str
    groups: tuple[str, ...] = ()
    reason: str = ""


class EventQuery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query for events; an empty field means any.

    Attributes:
        worker: a glob that the worker's address fits, or its part before the @.
        since: the events of that moment or later are meant; seconds since the epoch.
    """

    worker: str = ""
    kind: str = ""
    group: str = ""
    since: float = 0.0

    def means(self, event: MembershipEvent) -> bool:
        """Whether the query means this event."""
        if event.at < self.since or self.kind not in ("", event.kind):
            return False
        if self.group and self.group not in event.groups:
            return False
        return not self.worker or fits(self.worker, event.worker)


def must_be_kind(word: str) -> str:
    """Returns a word that is the name of a kind of event.

    Raises:
        UsageError: there is none of that name.
    """
    if word not in MEMBER_KINDS:
        raise UsageError(
            f"{word[:80]!r} is no kind of event", hint=f"write one of {', '.join(MEMBER_KINDS)}"
        )
    return word
