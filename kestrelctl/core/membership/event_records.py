"""Records of members that the store keeps, beside those of the core."""

from __future__ import annotations

import msgspec

#: The most old events that are deleted with one commit.
MOST_DROPPED = 5_000


class EventsDropped(msgspec.Struct, frozen=True):
    """Drops those of the oldest `MOST_DROPPED` events that are too old or too many; not the newest.

    Attributes:
        before: events before that moment go.
        up_to: events up to that number go, too.
    """

    before: float
    up_to: int
