"""Which classes to fill first: those that few of the waiting shapes can use.

A class that can run much of what waits is flexible. If the others are filled first, it stays free
for what only it can run.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.model.shape import Shape


class Usable(Hashable, Protocol):
    """What knows which shapes it can run."""

    def terms(self, shape: Shape) -> object | Refusal:
        """On what terms, or why not."""


C = TypeVar("C", bound=Usable)


class Flexibility(Generic[C]):
    """How many of the waiting shapes each class can run; kept while the same shapes wait."""

    def __init__(self) -> None:
        self._shapes: frozenset[Shape] = frozenset()
        self._usable: dict[C, int] = {}

    def tiers(self, classes: Iterable[C], shapes: Collection[Shape]) -> list[list[C]]:
        """Classes that can run equally many of these shapes together, those of the fewest first."""
        waiting = frozenset(shapes)
        if waiting != self._shapes:
            self._shapes, self._usable = waiting, {}
        found: dict[int, list[C]] = {}
        for cls in classes:
            usable = self._usable.get(cls)
            if usable is None:
                usable = sum(not isinstance(cls.terms(shape), Refusal) for shape in waiting)
                self._usable[cls] = usable
            found.setdefault(usable, []).append(cls)
        return [found[usable] for usable in sorted(found)]
