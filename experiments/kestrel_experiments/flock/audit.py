"""Whether every task of an experiment ended exactly once and well, by the records of its pools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from kestrel_experiments.flock.record import PoolRecords, TracedTask
from kestrelctl.core.model.wording import plural

#: How much less than it was asked to sleep a task may appear to have run: clocks are rounded.
CLOCK_SECONDS = 0.002
#: The most findings of a kind that are told one by one.
_MOST_TOLD = 3


class FlockAudit(msgspec.Struct, frozen=True):
    """The findings of an audit.

    Attributes:
        tasks: number of tasks that were to run.
        lost: number of tasks without an accepted result.
        twice: results accepted beyond one for each task.
        breaches: everything that is wrong, in words; empty if all is well.
        attempts: number of results of attempts, including those that did not count.
    """

    tasks: int
    lost: int
    twice: int
    breaches: list[str] = []
    attempts: int = 0


def audit(
    expected: Mapping[str, Mapping[str, float]], told: Mapping[str, PoolRecords]
) -> FlockAudit:
    """Compares what was submitted with what the pools tell.

    Args:
        expected: for each pool, by the keys of its submissions, how many seconds each task sleeps.
        told: the records of each pool.
    """
    lost = twice = 0
    attempts = 0
    breaches: list[str] = []
    for pool, sleeps in expected.items():
        records = told.get(pool)
        found = Counter(task.key for task in records.tasks) if records else Counter[str]()
        tasks = {task.key: task for task in records.tasks} if records else {}
        missing = [key for key in sleeps if not _has_result(tasks.get(key))]
        lost += len(missing)
        breaches += _told(pool, "has no accepted result", missing)
        doubled = [key for key, count in found.items() if count > 1]
        breaches += _told(pool, "was submitted twice", doubled)
        strangers = [key for key in found if key not in sleeps]
        breaches += _told(pool, "was never submitted", strangers)
        again = [task.key for task in tasks.values() if task.accepted > 1]
        breaches += _told(pool, "has several accepted results", again)
        short = [
            key
            for key, task in tasks.items()
            if _has_result(task) and task.wall_seconds < sleeps.get(key, 0.0) - CLOCK_SECONDS
        ]
        breaches += _told(pool, "ended before its time", short)
        early = [key for key, task in tasks.items() if _ran_before_it_came(task)]
        breaches += _told(pool, "started before it was submitted", early)
        if records is None:
            continue
        attempts += sum(task.attempts for task in records.tasks)
        counted = sum(count - 1 for count in found.values())
        counted += sum(task.accepted - 1 for task in tasks.values() if task.accepted > 1)
        charged = records.accepted_results - len(sleeps) + len(missing)
        if charged > 0:
            breaches.append(f"pool {pool}: charged {plural(charged, 'result')} too many")
        twice += max(counted, charged)
    return FlockAudit(sum(map(len, expected.values())), lost, twice, breaches, attempts)


def _has_result(task: TracedTask | None) -> bool:
    return (
        task is not None
        and task.accepted >= 1
        and task.state == "done"
        and task.exit_code == 0
        and task.started_at > 0
    )


def _ran_before_it_came(task: TracedTask) -> bool:
    return _has_result(task) and task.started_at < task.submitted_at - CLOCK_SECONDS


def _told(pool: str, what: str, keys: list[str]) -> list[str]:
    said = [f"pool {pool}: task {key} {what}" for key in keys[:_MOST_TOLD]]
    if len(keys) > _MOST_TOLD:
        said.append(f"pool {pool}: {len(keys) - _MOST_TOLD} more: {what}")
    return said
