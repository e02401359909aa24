"""A token bucket: bursts pass at once, a lasting stream at its rate."""

from __future__ import annotations


class Pace:
    """Spaces things out.

    Args:
        per_second: the lasting rate.
        burst: how many may follow each other at once after a rest.
    """

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._at = 0.0

    def pause_seconds(self, now: float) -> float:
        """Takes one token; returns how long to wait before it counts."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_second)

    def give_back(self) -> None:
        """Returns the latest token: what it was taken for went ahead at another pace."""
        self._tokens += 1.0
