"""Estimates how far a worker's clock is off the manager's, from what the worker says anyway.

Nothing can be heard before it was said: if a report says that a task ended at a moment that is
still to come, the worker's clock is ahead, by that much at least. A clock that is behind looks like
a report that took long, so it is believed to be behind only if the hello says so too, which waits
for nothing.
"""

from __future__ import annotations

#: What was learned counts for one to two such windows: clocks are put right.
WINDOW_SECONDS = 300.0


class Skew:
    """The estimate for one worker.

    Attributes:
        greeted_seconds: how far the steady clock that the worker dates its hello by is ahead of the
            pool's, as its latest hello says: whatever its ad says of moments is by that clock.
    """

    __slots__ = ("_before", "_best", "_hello", "_until", "greeted_seconds")

    def __init__(self) -> None:
        self.greeted_seconds = self._hello = 0.0
        self._best: float | None = None
        self._before: float | None = None
        self._until = 0.0

    def greet(self, said_at: float, heard_at: float, wall_ahead_seconds: float = 0.0) -> None:
        """Notes a hello, with its time by the worker's clock and by the pool's.

        Args:
            wall_ahead_seconds: how far the manager's machine's clock is ahead of the pool's.
        """
        self.greeted_seconds = said_at - heard_at
        self._hello = self.greeted_seconds - wall_ahead_seconds
        self.learn(said_at - wall_ahead_seconds, heard_at)

    def learn(self, said_at: float, heard_at: float) -> None:
        """Notes that something was heard of that happened at `said_at` by the worker's clock."""
        ahead = said_at - heard_at
        if heard_at >= self._until:
            self._before, self._best = self._best, ahead
            self._until = heard_at + WINDOW_SECONDS
        elif self._best is None or ahead > self._best:
            self._best = ahead

    @property
    def seconds(self) -> float | None:
        """The skew, positive if the worker is ahead; None while nothing was heard.

        It is too small by the time that the fastest message took.
        """
        found = [ahead for ahead in (self._best, self._before) if ahead is not None]
        if not found:
            return None
        ahead = max(found)
        return ahead if ahead >= 0 else max(ahead, min(self._hello, 0.0))
