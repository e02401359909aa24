"""Decides when a trigger fires, by the value of its expression, `for` and `cooldown`."""

from __future__ import annotations

from kestrelctl.core.triggers.definition import TriggerDefinition


class TriggerState:
    """One trigger over time.

    Attributes:
        true_since: since when the expression has been true at each look; None if it is not.
        fired_at: when it last fired; None if it never did.
        times: how often it has fired.

    Args:
        fired_at, times: as an earlier manager has left them.
    """

    def __init__(
        self, definition: TriggerDefinition, fired_at: float | None = None, times: int = 0
    ) -> None:
        self._definition = definition
        self.true_since: float | None = None
        self.fired_at = fired_at
        self.times = times

    def fires(self, is_true: bool, now: float) -> bool:
        """Notes whether the expression is true now; returns whether the trigger fires.

        Args:
            now: seconds since the epoch; never less than before.
        """
        if not is_true:
            self.true_since = None
            return False
        if self.true_since is None:
            self.true_since = now
        if now - self.true_since < self._definition.for_seconds:
            return False
        if self._rests(now):
            return False
        self.fired_at = now
        self.times += 1
        return True

    def _rests(self, now: float) -> bool:
        if self.fired_at is None:
            return False
        # A clock that was set back between two managers makes no rest longer than is defined.
        self.fired_at = min(self.fired_at, now)
        return now - self.fired_at < self._definition.cooldown_seconds
