"""One property over many workers: how many have it, and its least, mean and greatest value."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from kestrelctl.core.properties.reading import PropertyReading


class PropertySummary(msgspec.Struct, frozen=True):
    """One property of a group of workers.

    Attributes:
        count: how many have a value.
        missing: how many have none.
        min: the least; None without numbers, and so are the next two.
        mean: truth counts as one, so of truth values this is the share that is true.
        max: the greatest.
    """

    count: int
    missing: int
    min: float | None = None
    mean: float | None = None
    max: float | None = None


def summary_of(readings: Iterable[PropertyReading | None]) -> PropertySummary:
    """Sums up what a group's workers say of one property; None stands for one that says nothing."""
    count = missing = 0
    numbers: list[float] = []
    for reading in readings:
        if reading is None or reading.value is None:
            missing += 1
            continue
        count += 1
        if not isinstance(reading.value, str):
            numbers.append(float(reading.value))
    if not numbers:
        return PropertySummary(count, missing)
    least, most = min(numbers), max(numbers)
    # Rounding must not bring the mean out of what it is the mean of.
    mean = min(max(math.fsum(numbers) / len(numbers), least), most)
    return PropertySummary(count, missing, least, mean, most)
