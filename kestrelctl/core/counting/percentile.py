"""Percentiles of measured values."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The nearest-rank percentile of sorted values; None if there are none."""
    if not values:
        return None
    return values[min(len(values) - 1, int(len(values) * percent / 100))]
