"""Which of many shapes fit into what a worker has free: one look for each asset, not each shape.

For each asset the amounts that are asked are sorted, and behind each stands the set of shapes that
ask for no more than that. What fits is what is in the sets of all assets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from kestrelctl.core.model.assets import Amounts
from kestrelctl.core.model.claim import Claim


class Fitting:
    """The shapes that a class of workers can run, with their claims there.

    Args:
        claims: of each shape (its bit) the claim.
    """

    __slots__ = ("_all", "_by_asset")

    def __init__(self, claims: Iterable[tuple[int, Claim]]) -> None:
        known = list(claims)
        self._all = sum(bit for bit, _ in known)
        self._by_asset: list[tuple[str, list[int], list[int]]] = []
        for asset in sorted({asset for _, claim in known for asset in claim.amounts}):
            asking = sorted((claim.amounts.get(asset, 0), bit) for bit, claim in known)
            amounts: list[int] = []
            sets = [0]
            for amount, bit in asking:
                if not amounts or amounts[-1] != amount:
                    amounts.append(amount)
                    sets.append(sets[-1])
                sets[-1] |= bit
            self._by_asset.append((asset, amounts, sets))

    def into(self, free: Amounts) -> int:
        """The set of shapes of which a task fits, as far as amounts tell: units are not seen."""
        found = self._all
        for asset, amounts, sets in self._by_asset:
            found &= sets[bisect_right(amounts, max(0, free.get(asset, 0)))]
        return found
