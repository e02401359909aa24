"""Moments at which something of a job becomes due by itself."""

from __future__ import annotations

import heapq
from typing import TypeAlias

#: (when, job id, which feature of it): it may be of a job that has ended.
Alarm: TypeAlias = tuple[float, int, int]


class Alarms:
    """The alarms that are to come, in seconds since the epoch.

    Most are by the steady clock by which the whole pool decides. A moment that a user has named is
    by the machine's clock, and so is one that an earlier start has dated.

    Attributes:
        wall_ahead_seconds: how far the machine's clock is ahead of the steady one.
    """

    def __init__(self) -> None:
        self.wall_ahead_seconds = 0.0
        self._steady: list[Alarm] = []
        self._named: list[Alarm] = []

    def add(self, alarm: Alarm, *, named: bool) -> None:
        """Adds an alarm.

        Args:
            named: whether it is by the machine's clock.
        """
        heapq.heappush(self._named if named else self._steady, alarm)

    def take_due(self, now: float) -> Alarm | None:
        """Removes and returns the next alarm that is due; None if none is."""
        for alarms, moment in ((self._steady, now), (self._named, now + self.wall_ahead_seconds)):
            if alarms and alarms[0][0] <= moment:
                return heapq.heappop(alarms)
        return None

    def next_due(self) -> float | None:
        """The time of the next alarm, by the steady clock; None if there is none."""
        moments = [when for when, _, _ in self._steady[:1]]
        moments += [when - self.wall_ahead_seconds for when, _, _ in self._named[:1]]
        return min(moments, default=None)

    def has(self, job_id: int) -> bool:
        """Whether an alarm of a job is to come."""
        return any(alarm[1] == job_id for alarm in (*self._steady, *self._named))
