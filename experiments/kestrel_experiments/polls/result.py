"""The costs of polling many workers for a manager: runs, and their figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from kestrelctl.bench.machine import BenchMachine

#: The most clients for which growth is measured, as in the source.
MOST_CLIENTS = 300
#: In the source, 300 clients with 10 kB each gave spikes of more than this much in a second without
#: a limit, and this much on average with ten messages a second.
SOURCE_SPIKE_KB = 3_000
SOURCE_LIMITED_KB = 100


class PollRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        clients: number of workers that are polled.
        reply_bytes: size of all values of a reply together.
        poll_seconds: time from one poll of all to the next.
        limit_per_second: most polls that are sent in a second; None for any number.
        received_bytes: bytes of replies, in each second.
        cpu_ratio: share of one processor that the manager's process used.
        rss_bytes: memory of the manager's process, on average.
        most_waiting: most polls that waited at once for the limit.
    """

    clients: int
    reply_bytes: int
    poll_seconds: float
    limit_per_second: float | None
    received_bytes: list[int]
    cpu_ratio: float
    rss_bytes: int
    most_waiting: int

    @property
    def most_in_a_second(self) -> int:
        """The most bytes that came in a second."""
        return max(self.received_bytes, default=0)

    @property
    def mean_in_a_second(self) -> float:
        """The bytes that came in a second, on average."""
        return fmean(self.received_bytes) if self.received_bytes else 0.0

    def minutes(self) -> list[float]:
        """Returns the mean bytes per second in each whole minute."""
        found = self.received_bytes
        return [fmean(found[n : n + 60]) for n in range(0, len(found) - 59, 60)]


class PollResult(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, on one machine."""

    machine: BenchMachine
    command: str
    runs: list[PollRun]


class StraightLine(msgspec.Struct, frozen=True):
    """A straight line through points, by least squares.

    Attributes:
        r2: the share of their variance that it explains; 1 for all.
    """

    slope: float
    intercept: float
    r2: float


def line_through(points: Sequence[tuple[float, float]]) -> StraightLine | None:
    """Finds the straight line that fits best; None for fewer than three points."""
    if len(points) < 3:
        return None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x_mean, y_mean = fmean(xs), fmean(ys)
    spread = math.fsum((x - x_mean) ** 2 for x in xs)
    if not spread:
        return None
    slope = math.fsum((x - x_mean) * (y - y_mean) for x, y in points) / spread
    intercept = y_mean - slope * x_mean
    left = math.fsum((y - slope * x - intercept) ** 2 for x, y in points)
    whole = math.fsum((y - y_mean) ** 2 for y in ys)
    return StraightLine(slope, intercept, 1.0 - left / whole if whole else 1.0)


def growth(
    runs: Sequence[PollRun], most_clients: int = MOST_CLIENTS
) -> tuple[StraightLine | None, StraightLine | None]:
    """Fits the growth of the manager's CPU and memory with the clients, in runs without a limit."""
    free = [r for r in runs if r.limit_per_second is None and r.clients <= most_clients]
    least = min((r.reply_bytes for r in free), default=0)
    same = [r for r in free if r.reply_bytes == least]
    return (
        line_through([(r.clients, r.cpu_ratio) for r in same]),
        line_through([(r.clients, float(r.rss_bytes)) for r in same]),
    )
