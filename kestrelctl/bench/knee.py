"""Efficiency against task length, and its knee: the length below which workers wait for tasks.

A pool that hands out R tasks a second can keep W workers busy only with tasks of at least W/R
seconds: in that time it has served every worker once. This length is the knee. Below it efficiency
can be t·R/W at best; above it, 1. Both are bounds: near the knee the measured efficiency is lower.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise
from math import exp, log

import msgspec

from kestrelctl.bench.bounds import parse_sleep
from kestrelctl.bench.result import BenchRun, Knee

HALF = 0.5
#: Workers are called busy from this share of their time in tasks on.
MOST = 0.9


class Curve(msgspec.Struct, frozen=True):
    """Efficiency against task length on one number of workers.

    Attributes:
        points: (task length in seconds, utilisation 0 to 1), by length; at least one.
        dispatch_per_second: measured with tasks of no length; None if there was no such run.
    """

    workers: int
    points: tuple[tuple[float, float], ...]
    dispatch_per_second: float | None

    @property
    def knee_seconds(self) -> float | None:
        """The task length at which dispatch just keeps all workers busy."""
        if not self.dispatch_per_second:
            return None
        return knee_seconds(self.workers, self.dispatch_per_second)

    def seconds_of(self, share: float) -> float | None:
        """The task length at which this share of the workers' time was measured to go into tasks.

        Between two measured lengths it is interpolated over the logarithm of the length; None if
        the curve does not cross the share between its ends.
        """
        for (short, low), (long, high) in pairwise(self.points):
            if low < share <= high:
                part = (share - low) / (high - low)
                return exp(log(short) + part * (log(long) - log(short)))
        return None

    def text_of(self, share: float) -> str:
        """`seconds_of` for people; beyond the ends of the curve it says on which side it lies."""
        seconds = self.seconds_of(share)
        if seconds is not None:
            return length(seconds)
        first, last = self.points[0], self.points[-1]
        return f"< {length(first[0])}" if first[1] >= share else f"> {length(last[0])}"

    def share_at(self, seconds: float) -> float | None:
        """The share at a task length, interpolated likewise; None beyond the ends of the curve."""
        for (short, low), (long, high) in pairwise(self.points):
            if short <= seconds <= long:
                return low + (high - low) * log(seconds / short) / log(long / short)
        return None

    @property
    def half_seconds(self) -> float | None:
        """The task length measured to keep the workers half busy, if any was."""
        return self.seconds_of(HALF)

    @property
    def knee(self) -> Knee:
        """The curve's two landmarks, as data."""
        return Knee(
            workers=self.workers,
            dispatch_per_second=self.dispatch_per_second,
            knee_seconds=self.knee_seconds,
            half_seconds=self.half_seconds,
        )


def knee_seconds(workers: int, dispatch_per_second: float) -> float:
    """W/R: the shortest task with which `workers` can all be busy."""
    return workers / dispatch_per_second


def curves(runs: Iterable[BenchRun]) -> list[Curve]:
    """One curve for each number of workers that ran tasks of some fixed length, fewest first."""

    def number(run: BenchRun) -> int:
        return run.workers

    found = []
    for workers, group in groupby(sorted(runs, key=number), key=number):
        points: dict[float, float] = {}
        rate = None
        for run in group:
            sleep = parse_sleep(run.sleep)
            if sleep.longest == 0:
                rate = run.tasks_per_second
            elif sleep.shortest == sleep.longest:
                points[sleep.longest] = run.utilisation
        if points:
            found.append(Curve(workers, tuple(sorted(points.items())), rate))
    return found


def length(seconds: float) -> str:
    """Writes a task length: `4.6 ms`, `0.48 s`, `12 s`, `120 s`."""
    in_ms = seconds < 0.0995
    rounded = float(f"{1000 * seconds if in_ms else seconds:.2g}")
    return f"{rounded:,g} {'ms' if in_ms else 's'}"
