"""How fast a flock lives: every interval is a part or a multiple of one of its minutes."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.neighbour import RECLAIM_MINUTES

#: Of the source: pools tell each other what they have about once a minute.
MINUTE_SECONDS = 60.0
#: A pool looks at what is free and what waits no sooner again than this: 20 ms.
LOOK_MINUTES = 1 / 3000


class FlockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one pool in a flock.

    Attributes:
        minute_seconds: what a minute is; an experiment in scaled time has another.
        ttl: how far its announcements go.
        look_minutes: so long after a look at what is free and what waits the pool looks again,
            however much happens meanwhile. The pools of Butt, Zhang and Hu looked once in a minute.
        spread: how many neighbours that have nothing free are asked to lend what will be.
        reclaim_minutes: how long guests may go on while own tasks wait for their places.
        fixed: pools that it was told of by hand: it hears of no others, and what it tells them is
            what it has, never what of it is free. Empty for a flock that finds itself.
    """

    minute_seconds: float = MINUTE_SECONDS
    ttl: int = 1
    look_minutes: float = LOOK_MINUTES
    spread: int = 8
    reclaim_minutes: float = RECLAIM_MINUTES
    fixed: tuple[str, ...] = ()

    @property
    def announce_seconds(self) -> float:
        """What is told is told again after this time."""
        return self.minute_seconds

    @property
    def look_seconds(self) -> float:
        """Two looks at what is free and what waits are this far apart at least."""
        return self.look_minutes * self.minute_seconds

    @property
    def pace_seconds(self) -> float:
        """Two announcements of changes are this far apart at least."""
        return max(self.minute_seconds / 20, self.look_seconds)

    @property
    def expiry_seconds(self) -> float:
        """What was told holds so long: one message may be lost, and the next be late."""
        return 2.5 * self.minute_seconds

    @property
    def lease_seconds(self) -> float:
        """For so long a loan is asked for at a time; it is asked for again after half of it."""
        return 2 * self.minute_seconds

    @property
    def starved_seconds(self) -> float:
        """Who has found nobody for so long asks its neighbours whom they know; and again then."""
        return self.minute_seconds

    @property
    def busy_seconds(self) -> float:
        """Workers for which own tasks have waited so long are not told of: who asks for them would
        wait behind these.
        """
        return self.minute_seconds / 2

    @property
    def wish_pace_seconds(self) -> float:
        """One neighbour is not asked for more again sooner than this."""
        return self.minute_seconds / 600

    @property
    def unused_seconds(self) -> float:
        """What a borrower has left unused for so long goes to others who wait for it."""
        return self.minute_seconds / 60

    @property
    def patience_seconds(self) -> float:
        """A result whose home does not say that it has it is reported again after this time."""
        return max(5.0, self.minute_seconds / 6)

    @property
    def reclaim_seconds(self) -> float:
        """What runs for others may go on so long while own tasks wait for its place."""
        return self.reclaim_minutes * self.minute_seconds
