"""The properties of one worker, and which of them have changed since they were last told."""

from __future__ import annotations

from kestrelctl.core.properties.definition import MOST_PROPERTIES
from kestrelctl.core.properties.reading import PropertyReading


class PropertyTable:
    """One worker's latest readings, by name.

    A reading that says what the one before said is no change: it is not told again, so the time
    that others know is when the value was first read. The table itself keeps the latest time.
    """

    def __init__(self) -> None:
        self._readings: dict[str, PropertyReading] = {}
        self._untold: set[str] = set()

    def put(self, name: str, reading: PropertyReading) -> None:
        """Takes in a reading.

        Raises:
            ValueError: it is of one property too many.
        """
        before = self._readings.get(name)
        if before is None and len(self._readings) >= MOST_PROPERTIES:
            raise ValueError(f"more than {MOST_PROPERTIES} properties")
        self._readings[name] = reading
        if before is None or not reading.says_the_same_as(before):
            self._untold.add(name)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything that has not been told."""
        return bool(self._untold)

    def tell_changes(self) -> dict[str, PropertyReading]:
        """Returns what has changed since anything was last told, in the order of names."""
        changes = {name: self._readings[name] for name in sorted(self._untold)}
        self._untold.clear()
        return changes

    def tell_all(self) -> dict[str, PropertyReading]:
        """Returns everything, in the order of names, for those who know nothing yet."""
        self._untold.clear()
        return {name: self._readings[name] for name in sorted(self._readings)}
