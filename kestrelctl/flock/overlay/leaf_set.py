"""The pools whose ids are nearest to the own id, so many on each side."""

from __future__ import annotations

from bisect import insort

from kestrelctl.flock.overlay.pool_ids import clockwise, pool_id
from kestrelctl.protocol.pools import LEAVES

SIDE = LEAVES // 2


class LeafSet:
    """The leaves of one pool; in a small flock one may stand on both sides: the ring is short.

    Args:
        own_id: the id of the pool in the middle.
    """

    __slots__ = ("_members", "_own_id", "_sides")

    def __init__(self, own_id: int) -> None:
        self._own_id = own_id
        #: (distance, pool), the nearest first: with larger ids, then with smaller ones.
        self._sides: tuple[list[tuple[int, str]], list[tuple[int, str]]] = ([], [])
        self._members: dict[str, None] = {}

    def _distances(self, domain: str) -> tuple[int, int]:
        pool = pool_id(domain)
        return clockwise(self._own_id, pool), clockwise(pool, self._own_id)

    def wants(self, domain: str) -> bool:
        """Whether a pool belongs on a side on which it is not."""
        return any(
            (len(side) < SIDE or distance < side[-1][0]) and (distance, domain) not in side
            for side, distance in zip(self._sides, self._distances(domain), strict=True)
        )

    def add(self, domain: str) -> list[str]:
        """Takes a pool in, where it belongs; returns those that left a side for it."""
        left = []
        for side, distance in zip(self._sides, self._distances(domain), strict=True):
            if (distance, domain) not in side:
                insort(side, (distance, domain))
                left += [pool for _, pool in side[SIDE:]]
                del side[SIDE:]
        self._members = dict.fromkeys(self.larger() + self.smaller())
        return left

    def discard(self, domain: str) -> list[str]:
        """Takes a pool out; returns the farthest that is left on each side on which it was."""
        ends = []
        for side, distance in zip(self._sides, self._distances(domain), strict=True):
            if (distance, domain) in side:
                side.remove((distance, domain))
                ends += [side[-1][1]] if side else []
        self._members = dict.fromkeys(self.larger() + self.smaller())
        return ends

    def covers(self, key: int) -> bool:
        """Whether nobody outside can be nearer to an id than all in here."""
        distances = clockwise(self._own_id, key), clockwise(key, self._own_id)
        pairs = zip(self._sides, distances, strict=True)
        return any(len(side) < SIDE or distance <= side[-1][0] for side, distance in pairs)

    def nearest(self) -> list[str]:
        """The nearest pool on each side."""
        return [side[0][1] for side in self._sides if side]

    def larger(self) -> list[str]:
        """The pools with larger ids, the nearest first."""
        return [domain for _, domain in self._sides[0]]

    def smaller(self) -> list[str]:
        """The pools with smaller ids, the nearest first."""
        return [domain for _, domain in self._sides[1]]

    def members(self) -> list[str]:
        """All of them, each once."""
        return list(self._members)

    def __contains__(self, domain: str) -> bool:
        return domain in self._members
