"""That a trigger fired, as the store keeps it."""

from __future__ import annotations

import msgspec

#: So many old ones are deleted with one commit at most.
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
    """Of the oldest `MOST_DROPPED` those go that are too old or too many; the newest stays.

    Attributes:
        before: those before that moment.
        up_to: and those up to that number.
    """

    before: float
    up_to: int
