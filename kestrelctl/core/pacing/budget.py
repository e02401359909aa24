"""A budget of something for an account: what it has spent lately, and what it may spend."""

from __future__ import annotations


class Budget:
    """A budget in which what was spent runs off at a steady rate.

    Args:
        per_second: what may be spent lastingly.
        burst: what may be spent at once after a rest.
    """

    __slots__ = ("_at", "_burst", "_per_second", "_spent")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._spent = 0.0
        self._at = 0.0

    def spend(self, amount: float, now: float) -> None:
        """Notes that something was spent, whether there was room for it or not."""
        self._run_off(now)
        self._spent += amount

    def has_room(self, now: float) -> bool:
        """Whether more may be spent now."""
        self._run_off(now)
        return self._spent < self._burst

    def is_untouched(self, now: float) -> bool:
        """Whether all that was spent has run off."""
        self._run_off(now)
        return self._spent <= 0.0

    def _run_off(self, now: float) -> None:
        passed_seconds = now - self._at
        if passed_seconds > 0.0:
            left = self._spent - passed_seconds * self._per_second
            self._spent = left if left > 0.0 else 0.0
            self._at = now
