"""Counts what the tasks of a user have in the pool's file share, as long as it is kept there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kestrelctl.core.model.files.byte_limit import MOST_STORED_SUM_BYTES
from kestrelctl.core.model.result import Result

HOUR_SECONDS = 3600


class StoredBytes:
    """Sums by the hour in which the pool heard of the files.

    The share counts from when a file was sent, which is a little earlier: an hour counts as a whole
    until the files that came at its end are gone, too.

    Args:
        kept_seconds: how long the share keeps a file.

    Attributes:
        limit_bytes: with so much nothing more may be stored; None for any number.
        total_bytes: the sum of all hours.
    """

    __slots__ = ("_by_hour", "_kept_seconds", "limit_bytes", "total_bytes")

    def __init__(self, kept_seconds: float) -> None:
        self._kept_seconds = kept_seconds
        self._by_hour: dict[int, int] = {}
        self.limit_bytes: int | None = None
        self.total_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether nothing may begin any more that stores something."""
        return self.limit_bytes is not None and self.total_bytes >= self.limit_bytes

    @property
    def by_hour(self) -> Mapping[int, int]:
        """Hour since the epoch -> bytes."""
        return self._by_hour

    def restore(self, hours: Iterable[tuple[int, int]]) -> None:
        """Sets what is durable: (hour, bytes) of each hour."""
        self._by_hour.update(hours)
        self.total_bytes = sum(self._by_hour.values())

    def add(self, at: float, size_bytes: int) -> int:
        """Counts files of which the pool hears at that moment; returns the sum of that hour."""
        hour = hour_of(at)
        before = self._by_hour.get(hour, 0)
        together = self._by_hour[hour] = min(before + size_bytes, MOST_STORED_SUM_BYTES)
        self.total_bytes += together - before
        return together

    def first_end(self) -> float | None:
        """The time when the oldest files no longer count, in seconds since the epoch, or None."""
        return self._end(min(self._by_hour)) if self._by_hour else None

    def drop_ended(self, now: float) -> list[int]:
        """Stops counting what the share has deleted by now; returns the hours of that."""
        ended = [hour for hour in self._by_hour if self._end(hour) <= now]
        for hour in ended:
            self.total_bytes -= self._by_hour.pop(hour)
        return ended

    def _end(self, hour: int) -> float:
        return (hour + 1) * HOUR_SECONDS + self._kept_seconds


def hour_of(at: float) -> int:
    """The hour of a moment, counted from 1970-01-01 00:00 UTC."""
    return int(at // HOUR_SECONDS)


def stored_by(result: Result) -> int:
    """Counts the bytes that an attempt has put into the share: what it left and what it printed."""
    files = (result.outputs, result.stdout_stored, result.stderr_stored)
    return sum(stored.size_bytes for stored in files if stored is not None)
