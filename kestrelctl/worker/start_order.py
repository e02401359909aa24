"""The order in which queued tasks start."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class StartOrder(Generic[T]):
    """Depth first: the slot that finished last starts next, so that few slots are deep in work.

    Their reports then travel together, where reports from all slots in turn would travel one by
    one. So that nobody waits for ever, the caller takes the one that waits longest once in
    every slice.
    """

    def __init__(self) -> None:
        self._fresh: deque[int] = deque()
        self._warm: deque[int] = deque()
        self._items: dict[int, T] = {}

    def add(self, number: int, item: T, *, warm: bool) -> None:
        """Queue an item.

        Args:
            number: unique among all ever added.
            item: anything.
            warm: whether its slot has run something before.
        """
        self._items[number] = item
        (self._warm if warm else self._fresh).append(number)

    def longest_waiting(self) -> T | None:
        """Take the oldest in a fresh slot, else the oldest of all. None if there is nothing."""
        while self._fresh or self._warm:
            item = self._items.pop((self._fresh or self._warm).popleft(), None)
            if item is not None:
                return item
        return None

    def latest(self) -> T | None:
        """Take the youngest in a warm slot, else the oldest of all. None if there is nothing."""
        while self._fresh or self._warm:
            number = self._warm.pop() if self._warm else self._fresh.popleft()
            item = self._items.pop(number, None)
            if item is not None:
                return item
        return None

    def remove(self, number: int) -> T | None:
        """Take out a certain one. None if it is not (or no longer) queued."""
        return self._items.pop(number, None)

    def __contains__(self, number: int) -> bool:
        return number in self._items

    def __len__(self) -> int:
        return len(self._items)
