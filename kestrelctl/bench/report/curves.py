"""The two curves of a sweep: tasks running, and tasks dispatched and finished a second."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from math import ceil, floor, log10

import msgspec

MOST_BINS = 300


class Timeline(msgspec.Struct, frozen=True):
    """Curves over equal bins of `bin_seconds`, the first one starting at time 0.

    Attributes:
        bin_seconds: width of a bin.
        running: mean number of tasks running in each bin.
        dispatched: tasks started in each bin.
        finished: tasks finished in each bin.
    """

    bin_seconds: float
    running: list[float]
    dispatched: list[int]
    finished: list[int]

    def per_second(self, counts: list[int], window_seconds: float = 0.0) -> list[float]:
        """Counts per bin as a rate, in tasks per second.

        Args:
            counts: `dispatched` or `finished`.
            window_seconds: each value is the mean over this time, up to and including its bin
                (nothing happened before time 0); by default over the bin alone.
        """
        window = max(1, round(window_seconds / self.bin_seconds))
        done = [0, *accumulate(counts)]
        earlier = [0] * (window - 1) + done
        span = window * self.bin_seconds
        return [(now - then) / span for now, then in zip(done[1:], earlier, strict=False)]


def bin_width(span_seconds: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that cuts the span into at most `MOST_BINS`."""
    exact = span_seconds / MOST_BINS
    if exact <= 0:
        return 1.0
    power = 10.0 ** floor(log10(exact))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= exact * (1 - 1e-9))


def timeline(started_at: Iterable[float], finished_at: Iterable[float]) -> Timeline:
    """Bins the starts and finishes of tasks.

    Args:
        started_at: seconds since the start of the run, one per task, in any order. Clocks differ:
            what seems to be before the start counts as at the start.
        finished_at: likewise; order need not match `started_at`.
    """
    starts, finishes = ([max(0.0, at) for at in each] for each in (started_at, finished_at))
    span = max((*starts, *finishes), default=0.0)
    width = bin_width(span)
    bins = max(1, ceil(span / width - 1e-9))
    dispatched, begun = _count(starts, width, bins)
    finished, ended = _count(finishes, width, bins)
    busy = (later - earlier for earlier, later in pairwise(map(float.__sub__, begun, ended)))
    return Timeline(
        bin_seconds=width,
        running=[round(seconds / width, 1) for seconds in busy],
        dispatched=dispatched,
        finished=finished,
    )


def _count(moments: list[float], width: float, bins: int) -> tuple[list[int], list[float]]:
    """Counts moments per bin, and sums at every bin edge the time passed since all earlier ones.

    The sum for starts less the sum for finishes is the task time done up to that edge.
    """
    counts, sums = [0] * bins, [0.0] * bins
    for moment in moments:
        index = min(bins - 1, int(moment / width))
        counts[index] += 1
        sums[index] += moment
    edges = zip(accumulate(counts), accumulate(sums), strict=True)
    passed = [n * (k * width) - total for k, (n, total) in enumerate(edges, start=1)]
    return counts, [0.0, *passed]
