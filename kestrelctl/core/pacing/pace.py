"""A token bucket: bursts pass at once, a lasting stream at its rate."""

from __future__ import annotations


class Pace:
    """Spaces things out.

    Args:
        per_second: the lasting rate.
        burst: how many may follow each other at once after a rest.
    """

    __slots__ = ("_at", "_burst", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._at = float("-inf")

    def pause_seconds(self, now: float) -> float:
        """Takes one token; returns how long to wait before it counts."""
        self._fill(now)
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_second)

    def takes(self, now: float) -> bool:
        """Takes one token if there is one; returns whether there was."""
        self._fill(now)
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def _fill(self, now: float) -> None:
        tokens = self._tokens + (now - self._at) * self._per_second
        self._tokens = tokens if tokens < self._burst else self._burst
        self._at = now

    def give_back(self) -> None:
        """Returns the latest token: what it was taken for went ahead at another pace."""
        self._tokens += 1.0
