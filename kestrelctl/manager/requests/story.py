"""The story of a job: what was stored as it happened, and what the records tell.

A task that simply ran leaves no happening behind: its record says when it started, where, and how
it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from kestrelctl.core.model.job.stage import OUT
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord
from kestrelctl.core.model.result import Result, how_it_ended
from kestrelctl.core.model.wording import plural
from kestrelctl.manager import views
from kestrelctl.protocol.job_answers import JobView, StoryEntry


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """The standing of a task that has no final state yet.

    Attributes:
        what: `waiting`, `queued` (at its worker) or `running`.
        number, worker: of the attempt under way, if there is one.
        sent_at: when that was handed out; 0 if that is not known.
        detail: in words.
    """

    what: str
    number: int = 0
    worker: str = ""
    sent_at: float = 0.0
    detail: str = ""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A task whose story is to be told.

    Attributes:
        row: what is stored of it, if anything is.
        whereabouts: None if it has a final state.
    """

    index: int
    row: TaskRecord | None = None
    whereabouts: Whereabouts | None = None


def tell(
    record: JobRecord, happenings: Sequence[Happening], asked: Iterable[Asked], now: float
) -> list[StoryEntry]:
    """Tells everything that is known, in order of time.

    Args:
        happenings: those to tell of, as they were stored; all of the tasks that are asked about.
        asked: tasks of which the stored result and the present state are told, too.
        now: seconds since the epoch.
    """
    entries = [_submitted(record)]
    entries += [_happened(record, each) for each in happenings]
    for task in asked:
        entries += _of_task(record, task, happenings, now)
    if record.ended_at is not None:
        entries.append(_ended(record, record.ended_at))
    return sorted(entries, key=lambda entry: entry.at)


def cut(
    entries: Sequence[StoryEntry], limit: int, beside: JobView
) -> tuple[list[StoryEntry], bool]:
    """Cuts a story to what one answer can hold, in the same order; tells whether it leaves any out.

    The entries of the job stay before those of its tasks, late ones before early ones.

    Args:
        limit: the most entries.
        beside: what else is in the answer.
    """
    ranked = sorted(range(len(entries)), key=lambda i: (entries[i].task_id is not None, -i))
    fitting = views.first_that_fit((entries[i] for i in ranked[:limit]), beside)
    kept = sorted(ranked[: len(fitting)])
    return [entries[i] for i in kept], len(kept) < len(entries)


def _submitted(record: JobRecord) -> StoryEntry:
    return StoryEntry(
        at=record.submitted_at,
        task_id=None,
        what="submitted",
        cause=record.owner,
        detail=plural(record.spec.count, "task"),
    )


def _ended(record: JobRecord, ended_at: float) -> StoryEntry:
    counts = record.counts
    told = (
        f"{n:,} {state.value}"
        for state in (TaskState.DONE, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
        if (n := getattr(counts, state.value))
    )
    return StoryEntry(
        at=ended_at, task_id=None, what="ended", cause=record.state, detail=", ".join(told)
    )


def _happened(record: JobRecord, happening: Happening) -> StoryEntry:
    of_job = happening.index < 0
    return StoryEntry(
        at=happening.at,
        task_id=None if of_job else record.spec.task_id(happening.index),
        what=happening.what,
        number=happening.number,
        worker=happening.worker,
        cause=happening.cause,
        detail=happening.detail,
    )


def _of_task(
    record: JobRecord, task: Asked, happenings: Sequence[Happening], now: float
) -> list[StoryEntry]:
    """Tells what is not among the happenings: the attempt that counts, and how the task is now."""
    task_id = record.spec.task_id(task.index)
    if task.whereabouts is not None:
        return _stands(task_id, task.whereabouts, now)
    row = task.row
    if row is None:
        over = record.cancelling or record.state != "active"
        never_sent = over and task.index >= record.cursor
        return [_over(record, task, happenings, now)] if never_sent else []
    if row.state is TaskState.WAITING:
        return []  # It has just ended, and that is not durable yet.
    if row.result is None:
        return [_over(record, task, happenings, now)]
    return _ran(record, task_id, row, row.result, now)


def _stands(task_id: int, whereabouts: Whereabouts, now: float) -> list[StoryEntry]:
    entry = StoryEntry(
        at=now,
        task_id=task_id,
        what=whereabouts.what,
        number=whereabouts.number,
        worker=whereabouts.worker,
        detail=whereabouts.detail,
    )
    if not whereabouts.sent_at:
        return [entry]
    return [msgspec.structs.replace(entry, at=whereabouts.sent_at, what="sent", detail=""), entry]


def _ran(
    record: JobRecord, task_id: int, row: TaskRecord, result: Result, now: float
) -> list[StoryEntry]:
    """Tells of the attempt whose result was accepted."""
    started_at = _within(record, result.started_at, now)
    after_seconds = sum(run.wall_seconds for run in result.stages if run.name == OUT)
    ended_at = _within(record, result.started_at + result.wall_seconds + after_seconds, now)
    ran = f"ran {result.wall_seconds:,.3f} s"
    why = how_it_ended(result.reason, result.signal, result.exit_code)
    started = StoryEntry(
        at=started_at,
        task_id=task_id,
        what="started",
        number=result.number,
        worker=row.worker,
        detail=f"waited {result.waited_seconds:,.3f} s there",
    )
    return [
        started,
        msgspec.structs.replace(
            started,
            at=ended_at,
            what="ended",
            cause=row.state.value,
            detail=f"{ran}; {why}" if why else ran,
        ),
    ]


def _over(
    record: JobRecord, task: Asked, happenings: Sequence[Happening], now: float
) -> StoryEntry:
    """The end of a task without a result, at the time of the last thing that happened to it."""
    row = task.row
    state = row.state if row else TaskState.CANCELLED
    whose = (task.index, -1) if state is TaskState.CANCELLED else (task.index,)
    last = [
        each.at
        for each in happenings
        if each.index in whose and (each.index >= 0 or each.what == "cancelled")
    ]
    return StoryEntry(
        at=max(last, default=_latest(record, now)),
        task_id=record.spec.task_id(task.index),
        what="ended",
        worker=row.worker if row else "",
        cause=state.value,
        detail=plural(row.losses, "loss", "losses") if row and state is TaskState.LOST else "",
    )


def _within(record: JobRecord, at: float, now: float) -> float:
    """Puts a time by a worker's clock, which may be wrong, between the job's start and end."""
    return max(record.submitted_at, min(at, _latest(record, now)))


def _latest(record: JobRecord, now: float) -> float:
    """The end of the job, or now."""
    return now if record.ended_at is None else record.ended_at
