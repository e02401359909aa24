"""A claim: the amounts that one attempt is charged for, on both sides of the connection.

The pool makes a claim once for each (shape, class) and sends it along with the work; the worker's
agent charges what it was sent. So a policy that decides what is charged is evaluated in one place.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from kestrelctl.core.model.worker.assets import MILLI, Amounts

#: A worker ends a task that takes more of one of these assets than it may use.
ENFORCED = ("memory", "disk")
#: How often a claim of nothing fits.
UNBOUNDED = 1 << 30
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})


def limits_beyond(asked: Mapping[str, int], charged: Mapping[str, int]) -> Amounts:
    """Returns what attempts may use where they asked for more than they are charged.

    They may also use what is charged beyond that, as HTCondor gives a slot's whole memory.
    """
    return {name: asked[name] for name in ENFORCED if asked.get(name, 0) > charged.get(name, 0)}


def enforced(amounts: Mapping[str, int]) -> Amounts:
    """The amounts that a worker watches over, among those given."""
    return {name: amounts[name] for name in ENFORCED if name in amounts}


class Claim:
    """Amounts to charge. One object is shared by all attempts that are charged alike.

    Args:
        amounts: thousandths; all above zero.

    Attributes:
        units: the ids of the units that are charged, by asset; only a bound claim has any.
        cost: what the match costs its user: the amount by which the worker's weight falls. Without
            a policy a worker's weight is its processors.
        limits: what an attempt may use where that is more than it is charged. Whoever makes the
            claim sets it; it is not booked.
    """

    __slots__ = ("_items", "amounts", "cost", "limits")

    units: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    #: Whether each attempt takes units of its own, so that it must be charged by itself.
    takes_units: ClassVar[bool] = False

    def __init__(self, amounts: Amounts) -> None:
        self.amounts = amounts
        self._items = tuple(amounts.items())
        self.cost = amounts.get("cpus", 0) / MILLI
        self.limits: Mapping[str, int] = _NO_LIMITS

    def times_fitting(self, free: Amounts) -> int:
        """Returns how many attempts with this claim fit into `free` side by side."""
        times = UNBOUNDED
        for name, amount in self._items:
            fitting = free.get(name, 0) // amount
            if fitting < times:
                times = fitting
        return times if times > 0 else 0  # after a shrink, what is free may be below zero

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

    def bind(self, free: Amounts) -> Claim:
        """Charges one attempt; returns what is to be released when it has ended."""
        self.charge(free)
        return self

    def release(self, free: Amounts) -> None:
        """Puts the claim back into `free`, in place."""
        for name, amount in self._items:
            free[name] += amount

    def __repr__(self) -> str:
        return f"Claim({self.amounts})"
