"""Figures of an experiment: queue times, their spread over seeds, ratios, and idle machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median

import msgspec

from kestrel_experiments.flock.record import PoolRecords, RanHere, lender_of
from kestrel_experiments.flock.source import OVERALL


class FlockWaits(msgspec.Struct, frozen=True, omit_defaults=True):
    """Queue times of one pool in one run, in the unit of the trace.

    Attributes:
        pool: its letter; `all` for all pools together.
        elsewhere: how many of its tasks ran on machines of other pools.
        makespan: from the moment 0 of the trace to the end of its last task.
        waits: queue time of each task, in the order of submission; left out where only figures are
            wanted.
    """

    pool: str
    tasks: int
    mean: float
    least: float
    most: float
    elsewhere: int
    makespan: float
    waits: list[float] = []


class SeedSpread(msgspec.Struct, frozen=True):
    """A figure over several seeds: median, 5th and 95th percentile."""

    median: float
    low: float
    high: float


def spread(values: Iterable[float]) -> SeedSpread | None:
    """Sums up values, in any order; None if there are none. Percentiles are interpolated."""
    found = sorted(values)
    if not found:
        return None
    return SeedSpread(median(found), _quantile(found, 0.05), _quantile(found, 0.95))


def waits_of(records: PoolRecords, unit_seconds: float, began_at: float) -> FlockWaits:
    """Computes the queue times of the tasks that were submitted to a pool and ran.

    Args:
        began_at: the moment 0 of the trace, seconds since the epoch.
    """
    ran = [task for task in records.tasks if task.started_at]
    return _figures(
        records.pool,
        [round(task.waited_seconds / unit_seconds, 3) for task in ran],
        sum(lender_of(task.worker) is not None for task in ran),
        max(((task.ended_at - began_at) / unit_seconds for task in ran), default=0.0),
    )


def together(pools: Sequence[FlockWaits]) -> FlockWaits:
    """Joins the queue times of all pools as if they were one."""
    return _figures(
        OVERALL,
        [wait for pool in pools for wait in pool.waits],
        sum(pool.elsewhere for pool in pools),
        max((pool.makespan for pool in pools), default=0.0),
    )


def _figures(pool: str, waits: list[float], elsewhere: int, makespan: float) -> FlockWaits:
    return FlockWaits(
        pool=pool,
        tasks=len(waits),
        mean=round(fmean(waits), 3) if waits else 0.0,
        least=min(waits, default=0.0),
        most=max(waits, default=0.0),
        elsewhere=elsewhere,
        makespan=round(makespan, 2),
        waits=waits,
    )


def lent(pools: Mapping[str, PoolRecords]) -> dict[str, dict[str, int]]:
    """Counts the tasks of each pool that ran on machines of each other pool, by their letters."""
    letters = {records.domain: letter for letter, records in pools.items()}
    found: dict[str, dict[str, int]] = {}
    for letter, records in pools.items():
        counts: dict[str, int] = defaultdict(int)
        for task in records.tasks:
            if (lender := lender_of(task.worker)) is not None:
                counts[letters.get(lender, lender)] += 1
        if counts:
            found[letter] = dict(sorted(counts.items()))
    return found


class Starts(msgspec.Struct, frozen=True):
    """The delays until machines of other pools took tasks, in milliseconds, one for each such task.

    Attributes:
        after_idle: for tasks that waited already when the machine fell idle: from the end of what
            that machine ran before, of any pool, to the start.
        after_submission: for tasks that came when the machine was idle already: from their
            submission to their start.
    """

    after_idle: list[float] = []
    after_submission: list[float] = []


def starts_elsewhere(pools: Mapping[str, PoolRecords]) -> Starts:
    """Measures how soon machines of other pools took tasks, by what both sides tell.

    The home says when a task was submitted; the lender says on which machine it ran, when, and when
    what ran there before had ended. Whatever keeps an idle machine from a task that waits counts,
    for nobody else could have taken it: own tasks of the lender start first, and then there is no
    gap. The first task of a machine has nothing before it and is left out.
    """
    submitted_at = {
        (records.domain, task.key): task.submitted_at
        for records in pools.values()
        for task in records.tasks
    }
    after_idle, after_submission = [], []
    for records in pools.values():
        for before, guest in _in_turn(records.ran_here):
            came_at = submitted_at.get((guest.home, guest.key))
            if came_at is None:
                continue
            if came_at <= before.ended_at:
                after_idle.append(_ms(guest.started_at - before.ended_at))
            else:
                after_submission.append(_ms(guest.started_at - came_at))
    return Starts(after_idle, after_submission)


def _in_turn(ran: Iterable[RanHere]) -> Iterable[tuple[RanHere, RanHere]]:
    """Yields each task with the one that its machine ran before it, the earlier one first."""
    last: dict[str, RanHere] = {}
    for each in sorted(ran, key=lambda each: each.started_at):
        if each.worker in last:
            yield last[each.worker], each
        last[each.worker] = each


def _ms(seconds: float) -> float:
    return round(1000 * max(0.0, seconds), 2)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
