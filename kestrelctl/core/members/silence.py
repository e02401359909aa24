"""Tells how long a worker is silent, whether it is stuck in a long task, and what its process ran.

A worker with a processor of its own reports every few moments while it has short tasks. One of
many in a process that share a few processors has its turn seldom, and is silent for seconds without
being stuck: to take its tasks away costs messages then, and brings nothing. So the part of the
silence of a process's workers that their tasks do not explain is its habit, which fades with time.
"""

from __future__ import annotations

import math

from kestrelctl.core.jobs.job import Task

#: The time in which half of a habit is forgotten.
HALF_LIFE_SECONDS = 10.0
#: Silence that is longer than so many times the habit does not belong to it.
HABITS = 2.0


class Process:
    """A process of one or several workers: how long these were silent lately without running a task
    that long, and what may have ended it.

    Attributes:
        suspects: tasks suspected of ending their worker that one of them was given; some may have
            ended since.
        suspect_at: the one of its workers at which a suspected task ran when the first of them was
            lost: the others are lost with it, one by one. Empty if none did.
    """

    __slots__ = ("__weakref__", "_at", "_seconds", "suspect_at", "suspects")

    def __init__(self) -> None:
        self.suspects: list[Task] = []
        self.suspect_at = ""
        self._seconds = 0.0
        self._at = 0.0

    def learn(self, seconds: float, now: float) -> None:
        """Notes that one of its workers was silent for so long until now."""
        if seconds >= self.seconds(now):
            self._seconds, self._at = seconds, now

    def seconds(self, now: float) -> float:
        """The longest silence lately, less what was forgotten."""
        if not self._seconds:
            return 0.0
        return self._seconds * math.pow(0.5, (now - self._at) / HALF_LIFE_SECONDS)


class Silence:
    """The silence of one worker, by the manager's clock.

    Attributes:
        since: its last report, or when it was given something while it had nothing.
        process: the one of which it is a worker.
    """

    __slots__ = ("process", "since")

    def __init__(self, now: float) -> None:
        self.since = now
        self.process = Process()

    def begin(self, now: float) -> None:
        """Notes that the worker had nothing to report until now."""
        self.since = now

    def end(self, now: float, longest_seconds: float) -> None:
        """Notes a report of attempts, the longest of which ran this long; a new silence begins."""
        self.process.learn(now - self.since - longest_seconds, now)
        self.since = now

    def is_stuck(self, now: float, least_seconds: float) -> bool:
        """Whether it lasts for longer than the habit, and for longer than this."""
        silent_seconds = now - self.since
        habit_seconds = HABITS * self.process.seconds(now)
        return silent_seconds > least_seconds and silent_seconds > habit_seconds
