"""Quotas: what a user, or a whole group, may have at workers at once, and what they have there.

Attempts that wait in a worker's queue count, too: they begin without asking anybody.
"""

from __future__ import annotations

from collections.abc import Mapping

from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.worker.assets import Amounts, describe


def counted(charged: Mapping[str, int], tokens: Mapping[str, int]) -> Mapping[str, int]:
    """Joins what an attempt is charged with the tokens that it holds: both count against quotas.

    No worker is asked for an asset that the pool has itself, so no name is in both for long.
    """
    return {**charged, **tokens} if tokens else charged


class Quota:
    """Quota on attempts at workers, and on what is charged for these.

    Only `core.attempts` writes what is held.

    Args:
        whose: the user or group in words: `user ada`.
        max_running: how many attempts; None for any number.
        limits: thousandths of assets, also of those that the pool has itself; other assets have no
            limit.

    Attributes:
        attempts: how many there are.
        amounts: what they are charged of the assets in `limits`.
        settled: whether it is known how many there are. It is not from a restart of the manager
            until its workers have spoken: until then nothing more may be handed out.
        held_back: whether a plan left something out because of this quota: when something comes
            back, workers are to be looked at again.
    """

    __slots__ = ("amounts", "attempts", "held_back", "limits", "max_running", "settled", "whose")

    def __init__(self, whose: str, max_running: int | None, limits: Amounts) -> None:
        self.whose = whose
        self.max_running = max_running
        self.limits = limits
        self.attempts = 0
        self.amounts: dict[str, int] = dict.fromkeys(limits, 0)
        self.settled = True
        self.held_back = False

    def __bool__(self) -> bool:
        return self.max_running is not None or bool(self.limits)

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be handed out, whatever it is charged."""
        if not self.settled:
            return True
        return self.max_running is not None and self.attempts >= self.max_running

    def take(self, amounts: Mapping[str, int], attempts: int) -> None:
        """Counts attempts that were handed out, each charged these amounts."""
        self.attempts += attempts
        for asset in self.amounts:
            self.amounts[asset] += amounts.get(asset, 0) * attempts

    def room(self, amounts: Mapping[str, int], most: int) -> int:
        """Counts the attempts that may still be handed out, each charged these amounts.

        Args:
            most: the count goes no further.
        """
        if not self.settled:
            return 0
        if self.max_running is not None:
            most = min(most, self.max_running - self.attempts)
        for asset, limit in self.limits.items():
            amount = amounts.get(asset, 0)
            if amount:
                most = min(most, (limit - self.amounts[asset]) // amount)
        return max(0, most)

    def refusal(self, amounts: Mapping[str, int]) -> Refusal | None:
        """Tells why not even one more attempt may be handed out; None if one may."""
        if self.is_full:
            found = f"{self.attempts} of {self.whose}"
            return Refusal(Reason.QUOTA, wanted=f"at most {self.max_running} at once", found=found)
        for asset, limit in self.limits.items():
            amount = amounts.get(asset, 0)
            if amount and self.amounts[asset] + amount > limit:
                return Refusal(
                    Reason.QUOTA,
                    wanted=f"{describe(asset, amount)} of at most {describe(asset, limit)} at once",
                    found=f"{describe(asset, self.amounts[asset])} of {self.whose}",
                )
        return None

    def copy(self) -> Quota:
        """Copies the bounds and what is held, to count on from there."""
        found = Quota(self.whose, self.max_running, self.limits)
        found.attempts, found.amounts = self.attempts, dict(self.amounts)
        found.settled = self.settled
        return found
