"""Simulated time: a heap of actions to come, and a log of what happened."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from typing import Any

#: The most actions in one moment; more would never come to an end.
MOST_AT_ONCE = 20_000


class StandsStill(AssertionError):
    """Something is to be done again and again, without any pause."""


class SimulationClock:
    """Runs actions in the order of their moments, those of one moment in the order of asking.

    Attributes:
        now: seconds since the epoch, in the simulated world.
        story: everything that was told, as (moment, who, what, details).
    """

    def __init__(self, start: float = 1_000_000.0, *, keep_story: bool = True) -> None:
        self.start = start
        self.now = start
        self.actions = 0
        self.keep_story = keep_story
        self.story: list[tuple[float, str, str, tuple[Any, ...]]] = []
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = 0

    def at(self, moment: float, action: Callable[..., None], *arguments: Any) -> None:
        """Calls `action(*arguments)` at that moment, or at once if it is past."""
        self._asked += 1
        if moment < self.now:
            moment = self.now
        heapq.heappush(self._heap, (moment, self._asked, action, arguments))

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Calls `action(*arguments)` this many seconds from now."""
        self.at(self.now + seconds, action, *arguments)

    def run_until(self, moment: float) -> None:
        """Runs all actions before or at that moment.

        Raises:
            StandsStill: it does not get there.
        """
        heap = self._heap
        at_once = 0
        while heap and heap[0][0] <= moment:
            now, _, action, arguments = heapq.heappop(heap)
            at_once = at_once + 1 if now == self.now else 0
            if at_once > MOST_AT_ONCE:
                raise StandsStill(f"{MOST_AT_ONCE:,} actions in one moment")
            self.now = now
            self.actions += 1
            action(*arguments)
        self.now = max(self.now, moment)

    def tell(self, who: str, what: str, *details: Any) -> None:
        """Writes a line into the story."""
        if self.keep_story:
            self.story.append((self.now, who, what, details))

    def lines(self) -> list[str]:
        """Returns the story as text, one line each; equal worlds tell it alike."""
        return [
            f"{moment - self.start:12.6f} {who:10} {what} {' '.join(map(str, details))}".rstrip()
            for moment, who, what, details in self.story
        ]


def fingerprint(lines: list[str]) -> str:
    """Returns a fingerprint that is equal for equal stories."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
