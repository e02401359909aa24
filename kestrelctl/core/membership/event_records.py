"""What the store keeps of members, beside the records of the core."""

from __future__ import annotations

import msgspec

#: So many old events are deleted with one commit at most.
MOST_DROPPED = 5_000


class EventsDropped(msgspec.Struct, frozen=True):
    """Of the oldest `MOST_DROPPED` events those go that are too old or too many; the newest stays.

    Attributes:
        before: those before that moment.
        up_to: and those up to that number.
    """

    before: float
    up_to: int
