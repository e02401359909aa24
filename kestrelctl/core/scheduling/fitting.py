"""Finds the shapes that fit into a worker's free room: one look for each asset, not each shape.

For each asset the amounts that shapes ask for are sorted, each with the set of shapes that ask for
no more than that. The shapes that fit are those in the sets of all assets.

Most classes charge what is asked for (`WorkerClass.as_asked`): one such table is enough for all of
these, and it also tells which shapes they can run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.claim import Claim


class Fitting:
    """Shapes, with what each is charged.

    Args:
        claims: the bit of each shape, and its claim.
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
        """The set of shapes of which one task fits by its amounts: units are not looked at."""
        found = self._all
        for asset, amounts, sets in self._by_asset:
            amount = free.get(asset, 0)
            found &= sets[bisect_right(amounts, amount if amount > 0 else 0)]
        return found


class AskedFitting:
    """All shapes of a pool, with what each asks for.

    Attributes:
        table: of all of them.
        by_size: the set of those that only tags and amounts keep from a worker of the pool's own.
    """

    __slots__ = ("_known", "_staying", "_tagged", "by_size", "table")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forgets all shapes: they have other places in sets now."""
        self._known = 0
        self._tagged: dict[frozenset[str], int] = {}
        self.by_size = self._staying = 0
        self.table = Fitting(())

    def learn(self, shapes: Sequence[Shape]) -> None:
        """Takes in the shapes that are new.

        Args:
            shapes: all of them by their place in sets.
        """
        if self._known == len(shapes):
            return
        for shape in shapes[self._known :]:
            if not shape.requirements and not shape.rank:
                self.by_size |= shape.bit
            if shape.stays:
                self._staying |= shape.bit
            if shape.requires:
                self._tagged[shape.requires] = self._tagged.get(shape.requires, 0) | shape.bit
        self._known = len(shapes)
        self.table = Fitting((shape.bit, shape.claim) for shape in shapes)

    def runs_on(self, cls: WorkerClass) -> int:
        """The set of those `by_size` that run on workers of a class that charges as asked."""
        if cls.lends_nothing:
            return 0
        found = self.by_size & self.table.into(cls.capacity)
        if cls.distance_seconds:
            found &= ~self._staying
        for tags, shapes in self._tagged.items():
            if not tags <= cls.tags:
                found &= ~shapes
        return found
