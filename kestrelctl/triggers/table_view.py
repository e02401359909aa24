"""A table as expressions see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

V = TypeVar("V")
#: So many workers are added up in the time of one step of an expression, or less.
WORKERS_IN_A_STEP = 4


class TableView(Mapping[str, V], Generic[V]):
    """A table whose rows are made when they are asked for, and then kept.

    Args:
        names: of all rows.
        make: makes a row.
        row_steps: what it takes to make one, in steps of an expression.
    """

    def __init__(self, names: list[str], make: Callable[[str], V], row_steps: int = 0) -> None:
        self._names = dict.fromkeys(names)
        self._make = make
        self._row_steps = row_steps
        self._made: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def steps_to(self, name: str) -> int:
        """What it takes to get a row, in steps of an expression."""
        return 0 if name in self._made or name not in self._names else self._row_steps

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
