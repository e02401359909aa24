"""Pools by the digits that their ids share with the own id: a sample of the flock, of near ones."""

from __future__ import annotations

from kestrelctl.flock.overlay.pool_ids import digit, pool_id, shared_digits

Slot = tuple[int, int]


class RoutingTable:
    """The routing table of one pool.

    A slot is a row, the number of first digits that are the own id's, and the digit after them.

    Args:
        own_id: the id of the pool whose table it is.
    """

    __slots__ = ("_own_id", "_slots")

    def __init__(self, own_id: int) -> None:
        self._own_id = own_id
        self._slots: dict[Slot, str] = {}

    def slot_of(self, number: int) -> Slot:
        """The slot in which an id belongs that is not the own one."""
        row = shared_digits(self._own_id, number)
        return row, digit(number, row)

    def at(self, slot: Slot) -> str | None:
        """The pool in a slot."""
        return self._slots.get(slot)

    def rival(self, domain: str) -> str | None:
        """The pool in the slot in which another belongs."""
        return self._slots.get(self.slot_of(pool_id(domain)))

    def put(self, domain: str) -> str | None:
        """Puts a pool into its slot; returns the one that was there."""
        slot = self.slot_of(pool_id(domain))
        before = self._slots.get(slot)
        self._slots[slot] = domain
        return before

    def discard(self, domain: str) -> bool:
        """Empties the slot of a pool; returns whether the pool was there."""
        if domain not in self:
            return False
        del self._slots[self.slot_of(pool_id(domain))]
        return True

    def rows(self, first: int, last: int) -> list[str]:
        """The pools of some rows, those of the last row first."""
        found = [(row, pool) for (row, _), pool in self._slots.items() if first <= row <= last]
        found.sort(reverse=True)
        return [pool for _, pool in found]

    def members(self) -> list[str]:
        """All pools in the table."""
        return list(self._slots.values())

    def entries(self) -> list[tuple[Slot, str]]:
        """All pools with their slots, in the order of the slots."""
        return sorted(self._slots.items())

    def __contains__(self, domain: str) -> bool:
        return self.rival(domain) == domain

    def __len__(self) -> int:
        return len(self._slots)
