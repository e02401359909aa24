"""Items of a job as they are read from a store: some at a time."""

from __future__ import annotations

from typing import NamedTuple


class ItemWindow(NamedTuple):
    """Items with indexes in a row.

    Attributes:
        first: the index of the first of them.
        items: at least one.
        total: how many items the job has.
    """

    first: int
    items: tuple[str, ...]
    total: int

    @property
    def beyond(self) -> int:
        """The first index after them."""
        return self.first + len(self.items)

    def covers(self, index: int) -> bool:
        """Whether the item of this index is among them."""
        return self.first <= index < self.beyond

    def part(self, index: int, end: int) -> tuple[str, ...]:
        """The items from an index that it covers on, up to an end or as far as it has them."""
        return self.items[index - self.first : end - self.first]


def whole_window(items: tuple[str, ...] | None, index: int) -> ItemWindow | None:
    """All items of a job as one window; None if none of them has the index."""
    if items is None or not 0 <= index < len(items):
        return None
    return ItemWindow(0, items, len(items))
