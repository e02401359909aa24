"""Jobs, tasks and workers as users see them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.availability import worker_state
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.assets import natural
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.spec import cut_words
from kestrelctl.core.model.task_state import Counts
from kestrelctl.core.pool import Pool
from kestrelctl.protocol import codec
from kestrelctl.protocol.answers import (
    JobExplanation,
    JobView,
    Obstacle,
    StoryEntry,
    TaskView,
    WorkerView,
)

#: The longest command, and the longest requirements, in characters, in an answer about many jobs.
LONGEST_COMMAND = 200
#: Bytes of an answer around its page of views.
_FRAME_BYTES = 1000

V = TypeVar("V", TaskView, WorkerView, StoryEntry)


def percentile(values: list[float], percent: float) -> float | None:
    """The nearest-rank percentile of sorted values; None if there are none."""
    if not values:
        return None
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def shown(job: Job, unstored: Counts | None) -> tuple[Counts, int]:
    """How many tasks of an active job are shown as ended, and how many as running.

    Args:
        unstored: those whose end is not durable: to users they have not ended.
    """
    counts, running = job.counts, job.running
    if unstored is None:
        return counts, running
    durable = Counts(
        done=counts.done - unstored.done,
        failed=counts.failed - unstored.failed,
        lost=counts.lost - unstored.lost,
        cancelled=counts.cancelled - unstored.cancelled,
    )
    return durable, running + unstored.total()


def job_view(record: JobRecord, job: Job | None, unstored: Counts | None = None) -> JobView:
    """A job: from memory while it is active, otherwise from its record.

    Args:
        unstored: as for `shown`.
    """
    spec = record.spec
    counts, running = shown(job, unstored) if job else (record.counts, 0)
    waiting = job.remaining - job.running if job else 0
    state = record.state
    if job is not None:
        state = "cancelling" if job.cancelling else "active"
    latencies = sorted(job.latencies) if job else []
    return JobView(
        job_id=record.job_id,
        name=spec.name,
        owner=record.owner,
        state=state,
        tasks=spec.count,
        submitted_at=record.submitted_at,
        ended_at=record.ended_at,
        waiting=waiting,
        running=running,
        done=counts.done,
        failed=counts.failed,
        lost=counts.lost,
        cancelled=counts.cancelled,
        priority=spec.priority,
        argv=list(spec.argv),
        first=spec.first,
        step=spec.step,
        request=spec.request,
        requires=list(spec.requires),
        max_running=spec.max_running,
        mean_seconds=job.mean_seconds if job else None,
        dispatch_p50_seconds=percentile(latencies, 50),
        dispatch_p99_seconds=percentile(latencies, 99),
    )


def summary(view: JobView) -> JobView:
    """What anybody may know of a job: whose it is, what it takes of the pool, and how far it is."""
    return JobView(
        job_id=view.job_id,
        name="",
        owner=view.owner,
        state=view.state,
        tasks=view.tasks,
        submitted_at=view.submitted_at,
        ended_at=view.ended_at,
        waiting=view.waiting,
        running=view.running,
        done=view.done,
        failed=view.failed,
        lost=view.lost,
        cancelled=view.cancelled,
        priority=view.priority,
        request=view.request,
    )


def abridged(view: JobView) -> JobView:
    """A job whose command and requirements are cut where they become long: one of many in an
    answer.
    """
    return msgspec.structs.replace(
        view,
        argv=cut_words(view.argv, LONGEST_COMMAND),
        requires=cut_words(view.requires, LONGEST_COMMAND),
    )


def first_that_fit(views: Iterable[V], beside: JobView | None = None) -> list[V]:
    """As many as one answer may hold; at least one, if there is any.

    Args:
        beside: what else is in the answer.
    """
    found: list[V] = []
    room = codec.MAX_PAYLOAD_BYTES - _FRAME_BYTES - (_json_bytes(beside) if beside else 0)
    for view in views:
        room -= _json_bytes(view) + 1
        if room < 0 and found:
            break
        found.append(view)
    return found


def _json_bytes(view: msgspec.Struct) -> int:
    """The bytes of a view in a stanza."""
    return codec.text_bytes(msgspec.json.encode(view).decode())


def task_view(record: TaskRecord, job: JobRecord) -> TaskView:
    """A task that has a row."""
    result = record.result
    return TaskView(
        index=record.index,
        task_id=job.spec.task_id(record.index),
        state=record.state,
        worker=record.worker,
        exit_code=result.exit_code if result and not result.signal else None,
        signal=result.signal if result else 0,
        reason=result.reason if result else "",
        failures=record.failures,
        losses=record.losses,
        started_at=result.started_at if result else None,
        wall_seconds=result.wall_seconds if result else None,
        cpu_seconds=result.cpu_seconds if result else None,
        peak_bytes=result.peak_bytes if result else None,
        waited_seconds=result.waited_seconds if result else None,
        stdout_bytes=result.stdout_bytes if result else 0,
        stderr_bytes=result.stderr_bytes if result else 0,
    )


def worker_view(worker: Worker, now: float) -> WorkerView:
    """A worker."""
    ad = worker.ad
    return WorkerView(
        worker=worker.jid,
        state=worker_state(worker, now),
        assets=natural(worker.cls.capacity),
        free=natural(worker.free),
        tags=sorted(worker.cls.tags),
        running=worker.running,
        queued=worker.queued,
        done=worker.tasks_done,
        failed=worker.tasks_failed,
        host=ad.host,
        os=ad.os,
        arch=ad.arch,
        version=ad.version,
        joined_at=worker.joined_at,
        quarantined_until=worker.quarantined_until or None,
        quarantined_for=worker.quarantined_for,
        offered_cpus=ad.assets["cpus"] if worker.is_cut else None,
    )


def explanation(
    pool: Pool, job: Job, unstored: Counts | None, request_id: str, now: float
) -> JobExplanation:
    """Why a job's tasks wait."""
    found = pool.explain(job, now)
    return JobExplanation(
        id=request_id,
        job=job_view(job.record(), job, unstored),
        waiting=job.waiting,
        job_reasons=found.job_reasons,
        obstacles=[
            Obstacle(workers=group.workers, example=group.example, refusal=group.refusal)
            for group in found.groups[:20]
        ],
        could_run=found.could,
        ever=found.ever,
        tasks_ahead=found.tasks_ahead,
    )
