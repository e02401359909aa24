"""The properties of all workers of a pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kestrelctl.core.properties.definition import MOST_PROPERTIES
from kestrelctl.core.properties.reading import PropertyReading, PropertyValue
from kestrelctl.core.properties.summary import PropertySummary, summary_of

_NONE: dict[str, PropertyReading] = {}


class Readings:
    """The readings that each worker has told, by its address."""

    def __init__(self) -> None:
        self._told: dict[str, dict[str, PropertyReading]] = {}

    def take(
        self, worker: str, readings: Iterable[tuple[str, PropertyReading]], *, anew: bool
    ) -> frozenset[str]:
        """Takes in what a worker tells.

        Properties beyond the most that a worker may have are left out.

        Args:
            anew: what it told before does not count any more.

        Returns:
            The names of the properties whose values have changed.
        """
        before = self._told.get(worker, _NONE)
        told = {} if anew else dict(before)
        for name, reading in readings:
            if name in told or len(told) < MOST_PROPERTIES:
                told[name] = reading
        self._told[worker] = told
        return frozenset(
            name
            for name in told.keys() | before.keys()
            if _value(told, name) != _value(before, name)
        )

    def forget(self, worker: str) -> None:
        """Forgets a worker that has gone."""
        self._told.pop(worker, None)

    def of(self, worker: str) -> Mapping[str, PropertyReading]:
        """All readings of one worker."""
        return self._told.get(worker, _NONE)

    def values_of(self, worker: str) -> dict[str, PropertyValue]:
        """The values of one worker's properties, without those that have none."""
        told = self._told.get(worker, _NONE)
        return {name: each.value for name, each in told.items() if each.value is not None}

    def names(self, workers: Iterable[str]) -> list[str]:
        """The properties that any of these workers has told of, in order."""
        return sorted({name for worker in workers for name in self._told.get(worker, _NONE)})

    def summary(self, name: str, workers: Iterable[str]) -> PropertySummary:
        """Sums up a property of these workers; those that do not tell of it miss it."""
        return summary_of(self._told.get(worker, _NONE).get(name) for worker in workers)


def _value(told: Mapping[str, PropertyReading], name: str) -> tuple[type, PropertyValue | None]:
    reading = told.get(name)
    value = None if reading is None else reading.value
    return type(value), value  # 1, 1.0 and true are three values
