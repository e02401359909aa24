"""A claim: the amounts that one attempt is charged for, on both sides of the connection.

The pool makes a claim once for each (shape, class) and sends it along with the work; the worker's
agent charges what it was sent. So a policy that decides what is charged is evaluated in one place.
"""

from __future__ import annotations

from kestrelctl.core.model.assets import Amounts

#: How often a claim of nothing fits.
UNBOUNDED = 1 << 30


class Claim:
    """Amounts to charge. One object is shared by all attempts that are charged alike.

    Args:
        amounts: thousandths; all above zero.
    """

    __slots__ = ("_items", "amounts")

    def __init__(self, amounts: Amounts) -> None:
        self.amounts = amounts
        self._items = tuple(amounts.items())

    def times_fitting(self, free: Amounts) -> int:
        """How many attempts with this claim fit into `free` side by side."""
        times = UNBOUNDED
        for name, amount in self._items:
            fitting = free.get(name, 0) // amount
            if fitting < times:
                times = fitting
        return times

    def fits(self, free: Amounts) -> bool:
        """Whether one attempt fits into `free`."""
        for name, amount in self._items:  # noqa: SIM110 - any() costs three times as much
            if free.get(name, 0) < amount:
                return False
        return True

    def charge(self, free: Amounts, times: int = 1) -> None:
        """Takes the claim out of `free`, in place. The caller has checked that it fits."""
        for name, amount in self._items:
            free[name] -= amount * times

    def release(self, free: Amounts) -> None:
        """Puts the claim back into `free`, in place."""
        for name, amount in self._items:
            free[name] += amount

    def __repr__(self) -> str:
        return f"Claim({self.amounts})"
