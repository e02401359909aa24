"""The lengths of the tasks of a sweep, and the bounds on how fast they can be done.

Two bounds hold for N tasks on W workers, whatever the scheduler does:

* worker time: W workers need at least N·t/W seconds for N tasks of t seconds (mean);
* process starts: a machine that starts R processes a second needs at least N/R seconds.

The first is arithmetic, so a makespan below it is a wrong measurement. The second rests on a
measured rate and is only an estimate.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import blake2b
from math import fsum

from kestrelctl.errors import KestrelError, UsageError

#: Hundreds of digits make an infinite float.
_SPEC = re.compile(r"(\d{1,9}(?:\.\d+)?)(?:-(\d{1,9}(?:\.\d+)?))?")
_SEED = b"kestrel-sweep"


@dataclass(frozen=True, slots=True)
class Sleep:
    """A sleep time of tasks: `shortest` to `longest` seconds, uniform where they differ."""

    shortest: float
    longest: float

    def __str__(self) -> str:
        if self.shortest == self.longest:
            return _written(self.shortest)
        return f"{_written(self.shortest)}-{_written(self.longest)}"

    @property
    def mean(self) -> float:
        return (self.shortest + self.longest) / 2

    def seconds(self, index: int) -> float:
        """Duration of task `index`, to the millisecond; the same on every machine and day."""
        if self.shortest == self.longest:
            return self.shortest
        digest = blake2b(index.to_bytes(8), digest_size=8, key=_SEED).digest()
        share = int.from_bytes(digest) / 2**64
        return round(self.shortest + share * (self.longest - self.shortest), 3)


def _written(seconds: float) -> str:
    """Writes a time as `parse_sleep` reads it: without an exponent and without trailing zeros."""
    return f"{Decimal(str(seconds)).normalize():f}"


def parse_sleep(spec: str) -> Sleep:
    """Reads `"0"`, `"0.5"`, `"10"` or a range such as `"0-10"`, in seconds.

    Raises:
        UsageError: the text is neither, or the range runs backwards.
    """
    hint = "give seconds, e.g. 1 or 0.5, or a range, e.g. 0-10"
    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise UsageError(f"not a sleep time: {spec[:80]!r}", hint=hint)
    shortest = float(match[1])
    longest = float(match[2] or match[1])
    if shortest > longest:
        raise UsageError(f"the range of sleep times runs backwards: {spec!r}", hint=hint)
    return Sleep(shortest, longest)


def durations(sleep: Sleep, tasks: int) -> list[float]:
    """The sleep of each of `tasks` tasks, in seconds."""
    return [sleep.seconds(index) for index in range(tasks)]


def worker_time_bound(durations_seconds: Sequence[float], workers: int) -> float:
    """N·t/W: the least seconds that `workers` workers need, each with one task at a time."""
    return fsum(durations_seconds) / workers


def spawn_bound(tasks: int, spawn_limit_per_second: float) -> float:
    """N/R: seconds the machine needs to start `tasks` processes."""
    return tasks / spawn_limit_per_second


def utilisation(bound_seconds: float, makespan_seconds: float) -> float:
    """Share of the workers' time that was spent inside tasks, 0 to 1."""
    return bound_seconds / makespan_seconds


def check_plausible(makespan_seconds: float, bound_seconds: float) -> None:
    """Refuses a makespan below the worker-time bound N·t/W, which no system can reach.

    Raises:
        KestrelError: the makespan is below the bound, or not a positive time.
    """
    if makespan_seconds <= 0 or makespan_seconds < bound_seconds:
        raise KestrelError(
            f"a makespan of {makespan_seconds:.3f} s is impossible: "
            f"these tasks need at least {bound_seconds:.3f} s (N·t/W)",
            cause="the clock or the number of workers is wrong, or tasks ended early",
            hint="check that no other worker joined the pool, and that the tasks really slept",
        )
