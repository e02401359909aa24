"""An asset of which nobody knows how much a worker has: the outline that the pool finds of it.

Additive increase and multiplicative decrease, as TCP finds how much a path carries (RFC 5681, 3.1):
while tasks take all that is thought to be there and end well, there may be more; when one says that
there was no more for it, there is less, by half. An attempt that was handed out before the estimate
last changed does not raise it, and one that was handed out before it last fell does not lower it:
these say nothing about the estimate as it is now.
"""

from __future__ import annotations

from collections.abc import Mapping

from kestrelctl.core.model.worker.assets import MILLI, Amounts


class Outline:
    """The estimate of one asset of one worker.

    Attributes:
        estimate: how much of it tasks may take together, in thousandths; at first one unit. It is 0
            where even one task by itself was too much.
        changed, fell: attempts with smaller numbers were handed out before it last changed, and
            before it last fell.
        rests_until: an estimate of 0 is not tried again before that, in seconds since the epoch.
    """

    __slots__ = ("changed", "estimate", "fell", "rests_until")

    def __init__(self) -> None:
        self.estimate = MILLI
        self.changed = self.fell = 0
        self.rests_until = 0.0

    def after_success(self, number: int, amount: int, free: int) -> int:
        """The estimate now that an attempt has ended well, or gone on for a while: room for one
        more like it, if there was none.

        Args:
            number: of the attempt.
            amount: what it took, above zero.
            free: what was free while it ran.
        """
        if number < self.changed or free >= amount:
            return self.estimate
        return self.estimate + amount

    def was_alone(self, number: int, amount: int) -> bool:
        """Whether nothing else took any of it while this attempt was there: it had all that was
        thought to be there since it was handed out.

        Args:
            number, amount: as in `after_success`.
        """
        return number >= self.fell and self.estimate <= amount

    def after_refusal(self, number: int, amount: int) -> int:
        """The estimate now that there was no more for an attempt: half of it, in whole amounts of
        such attempts and at least one; nothing if it was for no more than this one.

        Args:
            number, amount: as in `after_success`.
        """
        if number < self.fell:
            return self.estimate
        if self.estimate <= amount:
            return 0
        half = self.estimate // 2
        return max(half - half % amount, amount)


def exhausted(unknown: Mapping[str, int], charged: Amounts, exit_code: int) -> str:
    """The asset of which a task says, by its exit status, that there was no more; empty if none.

    Args:
        unknown: assets of unknown capacity, each with that status.
        charged: what the task took: it can say so of nothing else.
    """
    named = (asset for asset, status in unknown.items() if status == exit_code)
    return next((asset for asset in named if asset in charged), "")
