"""The difference between the machine's clock and the steady one by which the pool decides.

Durations are of the steady clock whatever happens. A moment that a person has named, and one that
is shown, is of the machine's clock as it is set now: it is corrected while a manager runs.
"""

from __future__ import annotations

from typing import TypeVar

from kestrelctl.clock_and_session import Clock
from kestrelctl.core.model.numbers import told

T = TypeVar("T")

#: The time between two looks at the machine's clock.
LOOK_SECONDS = 5.0
#: The difference of the two clocks that does not matter.
TOLERANCE_SECONDS = 1.0
#: A moment so long after now is no moment of the past, by rounding or otherwise.
_SLACK_SECONDS = 1.0


class WallClock:
    """A manager's knowledge of its machine's clock.

    Attributes:
        ahead_seconds: how far it is ahead of the steady clock; 0 until somebody has set it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_at = clock.now()
        self.ahead_seconds = 0.0

    def look(self) -> bool:
        """Looks at the machine's clock; returns whether somebody has set it since the last look."""
        ahead_seconds = self._clock.wall() - self._clock.now()
        if abs(ahead_seconds - self.ahead_seconds) < TOLERANCE_SECONDS:
            return False
        self.ahead_seconds = ahead_seconds
        return True

    def told(self, message: T) -> T:
        """Converts the moments of a message to a person into the time of the machine's clock.

        Those from before this process are by that clock already: the store keeps them.
        """
        if not self.ahead_seconds:
            return message
        found: T = told(message, self.shown, self._to_come)
        return found

    def shown(self, moment: float) -> float:
        """Converts a moment that was into the time of the machine's clock, as people see it."""
        latest = self._clock.now() + _SLACK_SECONDS
        if not self._began_at <= moment <= latest:
            return moment
        return moment + self.ahead_seconds

    def _to_come(self, moment: float) -> float:
        return moment + self.ahead_seconds if moment >= self._began_at else moment

    def steady(self, moment: float) -> float:
        """Converts a moment that a person named into the time of the steady clock."""
        if not self.ahead_seconds:
            return moment
        found = moment - self.ahead_seconds
        return found if found >= self._began_at else min(moment, self._began_at)
