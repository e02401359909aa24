"""The records of triggers that fired, as the store keeps them."""

from __future__ import annotations

import msgspec

#: The most old records that are deleted with one commit.
MOST_DROPPED = 5_000


class TriggerFired(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger fired.

    Attributes:
        number: the higher the later; none is used twice.
        at: seconds since the epoch, by the manager's clock.
        actions: what was to be done, in words.
        problems: what could not be begun.
    """

    number: int
    at: float
    trigger: str
    actions: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class FiredDropped(msgspec.Struct, frozen=True):
    """Drops those of the oldest `MOST_DROPPED` that are too old or too many; keeps the newest.

    Attributes:
        before: records before that moment go.
        up_to: records up to that number go, too.
    """

    before: float
    up_to: int
