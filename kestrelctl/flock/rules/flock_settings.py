"""The pace of a flock: every interval is a part or a multiple of one of its minutes."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.neighbour import RECLAIM_MINUTES

#: From the source: pools tell each other what they have about once a minute.
MINUTE_SECONDS = 60.0
#: The least time between two looks at what is free and what waits: 20 ms.
LOOK_MINUTES = 1 / 3000


class FlockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one pool in a flock.

    Attributes:
        minute_seconds: the length of a minute; an experiment in scaled time has another.
        ttl: how far its announcements go.
        look_minutes: the least time between two looks at what is free and what waits, however much
            happens meanwhile. The pools of Butt, Zhang and Hu looked once in a minute.
        spread: how many neighbours that have nothing free are asked to lend what will be free.
        reclaim_minutes: how long guests may go on while own tasks wait for their places.
        fixed: the pools that were named by hand: it hears of no others, and tells them what it
            has, never what of that is free. Empty for a flock that finds itself.
    """

    minute_seconds: float = MINUTE_SECONDS
    ttl: int = 1
    look_minutes: float = LOOK_MINUTES
    spread: int = 8
    reclaim_minutes: float = RECLAIM_MINUTES
    fixed: tuple[str, ...] = ()

    @property
    def announce_seconds(self) -> float:
        """The time after which an announcement is repeated."""
        return self.minute_seconds

    @property
    def look_seconds(self) -> float:
        """The least time between two looks at what is free and what waits."""
        return self.look_minutes * self.minute_seconds

    @property
    def pace_seconds(self) -> float:
        """The least time between two announcements of changes."""
        return max(self.minute_seconds / 20, self.look_seconds)

    @property
    def expiry_seconds(self) -> float:
        """The time for which an announcement holds: one may be lost, and the next be late."""
        return 2.5 * self.minute_seconds

    @property
    def lease_seconds(self) -> float:
        """The time for which a loan is asked for; it is asked for again after half of it."""
        return 2 * self.minute_seconds

    @property
    def starved_seconds(self) -> float:
        """The interval at which a pool that finds no lender asks its neighbours whom they know."""
        return self.minute_seconds

    @property
    def busy_seconds(self) -> float:
        """The time after which workers that own tasks wait for are not announced: a borrower would
        wait behind these tasks.
        """
        return self.minute_seconds / 2

    @property
    def wish_pace_seconds(self) -> float:
        """The least time until one neighbour is asked for more again."""
        return self.minute_seconds / 600

    @property
    def unused_seconds(self) -> float:
        """The time after which what a borrower leaves unused goes to others who wait for it."""
        return self.minute_seconds / 60

    @property
    def patience_seconds(self) -> float:
        """The time after which a result that its home has not acknowledged is reported again."""
        return max(5.0, self.minute_seconds / 6)

    @property
    def reclaim_seconds(self) -> float:
        """The time for which guests may go on while own tasks wait for their places."""
        return self.reclaim_minutes * self.minute_seconds
