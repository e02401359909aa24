"""Claims on assets that have units: which units an attempt gets. Pure, and the same on both sides.

Whole units are exclusive, and a fraction comes out of one single unit. A unit is booked like an
asset of its own (`assets.unit_key`), so a claim whose units are chosen is an ordinary claim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kestrelctl.core.model.worker.assets import MILLI, Amounts, unit_key
from kestrelctl.core.model.worker.claim import Claim


class BoundClaim(Claim):
    """A claim with the units that were chosen for it."""

    __slots__ = ("units",)

    units: Mapping[str, tuple[str, ...]]  # type: ignore[misc]

    def __init__(self, amounts: Amounts, units: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(amounts)
        self.units = units


class UnitClaim(Claim):
    """A claim on units that are not chosen yet.

    Args:
        indexed: assets that have units.
    """

    __slots__ = ("_asked",)

    takes_units = True

    def __init__(self, amounts: Amounts, indexed: Collection[str]) -> None:
        super().__init__(amounts)
        self._asked = [(name, n) for name, n in amounts.items() if name in indexed]

    def times_fitting(self, free: Amounts) -> int:
        times = super().times_fitting(free)
        for asset, amount in self._asked:
            if times:
                times = min(times, _times(amount, [left for _, left in _units(free, asset)]))
        return times

    def fits(self, free: Amounts) -> bool:
        return super().fits(free) and all(
            choose(_units(free, asset), amount) is not None for asset, amount in self._asked
        )

    def charge(self, free: Amounts, times: int = 1) -> None:
        for _ in range(times):
            self.bind(free)

    def bind(self, free: Amounts) -> Claim:
        charged = dict(self.amounts)
        units: dict[str, tuple[str, ...]] = {}
        for asset, amount in self._asked:
            chosen = choose(_units(free, asset), amount)
            assert chosen is not None, f"{self} was not asked whether it fits"
            charged.update((unit_key(asset, unit), n) for unit, n in chosen.items())
            units[asset] = tuple(chosen)
        bound = BoundClaim(charged, units)
        bound.cost = self.cost
        bound.charge(free)
        return bound


def claim_of(amounts: Amounts, indexed: Collection[str]) -> Claim:
    """A claim of these amounts at a worker.

    Args:
        indexed: its assets that have units.
    """
    if indexed and any(name in indexed for name in amounts):
        bound = {name.partition("/")[0] for name in amounts if "/" in name}
        if not bound.issuperset(name for name in amounts if name in indexed):
            return UnitClaim(amounts, indexed)
    return Claim(amounts)


def choose(units: Sequence[tuple[str, int]], amount: int) -> dict[str, int] | None:
    """Units for an amount, and how much of each; None if they are not there.

    These are the first whole units that nobody has, and for the rest the unit with the least free
    that is enough: so units stay whole for those who need whole ones.

    Args:
        units: (id, what is free of it), in the order of the worker's ad.
    """
    whole, part = divmod(amount, MILLI)
    chosen: dict[str, int] = {}
    if part:
        enough = [(left, place) for place, (_, left) in enumerate(units) if left >= part]
        if not enough:
            return None
        chosen[units[min(enough)[1]][0]] = part
    for unit, left in units:
        if not whole:
            break
        if left == MILLI and unit not in chosen:
            chosen[unit] = MILLI
            whole -= 1
    return None if whole else chosen


def _units(free: Amounts, asset: str) -> list[tuple[str, int]]:
    prefix = unit_key(asset, "")
    return [(name[len(prefix) :], left) for name, left in free.items() if name.startswith(prefix)]


def _times(amount: int, lefts: list[int]) -> int:
    """Returns how often an amount fits into units with so much left."""
    whole, part = divmod(amount, MILLI)
    if not part:
        return lefts.count(MILLI) // whole
    if not whole:
        return sum(left // part for left in lefts if left > 0)
    times = 0
    units = [(str(place), left) for place, left in enumerate(lefts)]
    while (chosen := choose(units, amount)) is not None:
        units = [(unit, left - chosen.get(unit, 0)) for unit, left in units]
        times += 1
    return times
