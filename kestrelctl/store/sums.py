"""Sums of what attempts have used: added up once for each job of a batch, not once for each task.

An attempt counts when its result becomes durable. That happens once for each attempt, because the
pool takes each result in once and a batch is written as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from random import Random

import msgspec

from kestrelctl.core.counting.percentile import percentile
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import TaskRecord

DAY_SECONDS = 86_400
#: A job with more tasks has the percentiles of so many, one from each part of the array.
MOST_SAMPLED = 5_000
#: The percentiles of a `Spread`.
PERCENTS = (50, 90, 99)

#: An enumeration looks its members up slowly.
WAITING = TaskState.WAITING

#: (wait, run time, processor time) in seconds, and the peak of memory in bytes, of a task; 0 bytes
#: if that is not known.
Measures = tuple[float, float, float, int]


class Used(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of attempts that have results. Lost attempts are not among them.

    Attributes:
        attempts: how many; each one of a task that failed and ran again.
        tasks: how many of them were the last of their task.
        wait_seconds: from the submission of the job to the start of the last attempt, all tasks
            together.
        byte_seconds: the peak of memory times the run time, all attempts together whose memory is
            known: no less than what these really had.
        longest_wait_seconds, longest_wall_seconds, longest_cpu_seconds, peak_bytes: the most of
            one attempt; 0 bytes if it is known of none.
    """

    attempts: int = 0
    tasks: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    wait_seconds: float = 0.0
    byte_seconds: float = 0.0
    longest_wait_seconds: float = 0.0
    longest_wall_seconds: float = 0.0
    longest_cpu_seconds: float = 0.0
    peak_bytes: int = 0

    def plus(self, more: Used) -> Used:
        """The sum of both."""
        return Used(
            attempts=self.attempts + more.attempts,
            tasks=self.tasks + more.tasks,
            cpu_seconds=self.cpu_seconds + more.cpu_seconds,
            wall_seconds=self.wall_seconds + more.wall_seconds,
            wait_seconds=self.wait_seconds + more.wait_seconds,
            byte_seconds=self.byte_seconds + more.byte_seconds,
            longest_wait_seconds=max(self.longest_wait_seconds, more.longest_wait_seconds),
            longest_wall_seconds=max(self.longest_wall_seconds, more.longest_wall_seconds),
            longest_cpu_seconds=max(self.longest_cpu_seconds, more.longest_cpu_seconds),
            peak_bytes=max(self.peak_bytes, more.peak_bytes),
        )


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of what the tasks of a job took: the percentiles of `PERCENTS` of each measure.

    Attributes:
        tasks: how many ended tasks were looked at.
        whole: whether these are all; otherwise one from each part of the array was taken.
        memory_tasks: how many of them have a known peak of memory. Only these count in
            `peak_bytes`, which is empty if there are none.
    """

    tasks: int = 0
    whole: bool = True
    memory_tasks: int = 0
    wait_seconds: tuple[float, ...] = ()
    wall_seconds: tuple[float, ...] = ()
    cpu_seconds: tuple[float, ...] = ()
    peak_bytes: tuple[int, ...] = ()


def by_job(records: Iterable[TaskRecord]) -> dict[int, list[TaskRecord]]:
    """The records with results, by job."""
    found: dict[int, list[TaskRecord]] = {}
    for record in records:
        if record.result is not None:
            of_job = found.get(record.job_id)
            if of_job is None:
                of_job = found[record.job_id] = []
            of_job.append(record)
    return found


def summed(records: Sequence[TaskRecord], submitted_at: float) -> Used:
    """Returns what results of one job add to its sums.

    Args:
        records: each with a result; at least one.
        submitted_at: when the job was.
    """
    results = [record.result for record in records if record.result is not None]
    waits = [
        max(0.0, record.result.started_at - submitted_at)
        for record in records
        if record.state is not WAITING and record.result is not None
    ]
    return Used(
        attempts=len(results),
        tasks=len(waits),
        cpu_seconds=sum([result.cpu_seconds for result in results]),
        wall_seconds=sum([result.wall_seconds for result in results]),
        wait_seconds=sum(waits),
        byte_seconds=sum([result.wall_seconds * result.peak_bytes for result in results]),
        longest_wait_seconds=max(waits, default=0.0),
        longest_wall_seconds=max([result.wall_seconds for result in results]),
        longest_cpu_seconds=max([result.cpu_seconds for result in results]),
        peak_bytes=max([result.peak_bytes for result in results]),
    )


def day_of(at: float) -> int:
    """The day of a moment in UTC, counted from 1970-01-01.

    Args:
        at: seconds since the epoch.
    """
    return int(at // DAY_SECONDS)


def sampled_indexes(job_id: int, beyond: int) -> list[int] | None:
    """Chooses tasks of an array to look at: one of each of `MOST_SAMPLED` equal parts, at random
    but the same each time; None for all, if there are no more.

    Args:
        beyond: no task has this index or a higher one.
    """
    if beyond <= MOST_SAMPLED:
        return None
    draw = Random(job_id)
    edges = [part * beyond // MOST_SAMPLED for part in range(MOST_SAMPLED + 1)]
    return [draw.randrange(first, last) for first, last in pairwise(edges)]


def spread(measures: Sequence[Measures], *, whole: bool) -> Spread:
    """The percentiles of what was measured."""
    if not measures:
        return Spread(whole=whole)
    *columns, peaks = zip(*measures, strict=True)
    waits, walls, cpus = map(_percentiles, columns)
    known_peaks = [peak for peak in peaks if peak]
    return Spread(
        tasks=len(measures),
        whole=whole,
        memory_tasks=len(known_peaks),
        wait_seconds=waits,
        wall_seconds=walls,
        cpu_seconds=cpus,
        peak_bytes=tuple(int(peak) for peak in _percentiles(known_peaks)),
    )


def _percentiles(column: Iterable[float]) -> tuple[float, ...]:
    """The percentiles of `PERCENTS`; empty for an empty column."""
    in_order = sorted(column)
    found = [percentile(in_order, percent) for percent in PERCENTS]
    return tuple(each for each in found if each is not None)
