"""Records as rows of the SQLite store, and back."""

from __future__ import annotations

from typing import Any

import msgspec

from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord, WorkerRecord
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.core.model.task_state import Counts, TaskState

#: A task's state as stored. Never renumber: databases hold these.
STATE_CODES: dict[TaskState, int] = {
    TaskState.WAITING: 0,
    TaskState.DONE: 1,
    TaskState.FAILED: 2,
    TaskState.LOST: 3,
    TaskState.CANCELLED: 4,
}
STATES: tuple[TaskState, ...] = tuple(STATE_CODES)

#: The order of `task_row`.
TASK_COLUMNS = (
    "job_id, idx, state, failures, losses, concluded, worker, number, outcome, started_at,"
    " wall_seconds, waited_seconds, cpu_seconds, peak_bytes, exit_code, signal, reason, stdout,"
    " stderr, stdout_bytes, stderr_bytes"
)
TASK_PARAMETERS = ", ".join("?" for _ in TASK_COLUMNS.split(","))

#: The order of `happening_row`.
HAPPENING_COLUMNS = "job_id, idx, at, what, number, worker, cause, detail"

#: The order in which `job_record` wants a job's row.
JOB_COLUMNS = (
    "job_id, owner, spec, submitted_at, submission_key, state, cancelling, cursor, done, failed,"
    " lost, cancelled, ended_at"
)

#: The order in which `worker_record` wants a worker's row.
WORKER_COLUMNS = "worker, draining, ad"

_NO_RESULT = (None,) * 14
_encoder = msgspec.json.Encoder()
_spec_decoder = msgspec.json.Decoder(JobSpec)
_ad_decoder = msgspec.json.Decoder(WorkerAd)


def task_row(record: TaskRecord) -> tuple[Any, ...]:
    """The record in the order of `TASK_COLUMNS`. Runs once for each task: no loops, no helpers."""
    result = record.result
    if result is None:
        return (
            record.job_id,
            record.index,
            STATE_CODES[record.state],
            record.failures,
            record.losses,
            record.concluded,
            record.worker,
            *_NO_RESULT,
        )
    return (
        record.job_id,
        record.index,
        STATE_CODES[record.state],
        record.failures,
        record.losses,
        record.concluded,
        record.worker,
        result.number,
        result.outcome,
        result.started_at,
        result.wall_seconds,
        result.waited_seconds,
        result.cpu_seconds,
        result.peak_bytes,
        result.exit_code,
        result.signal,
        result.reason,
        result.stdout,
        result.stderr,
        result.stdout_bytes,
        result.stderr_bytes,
    )


def task_record(row: tuple[Any, ...]) -> TaskRecord:
    """The inverse of `task_row`."""
    job_id, index, state, failures, losses, concluded, worker, number, *rest = row
    result = None if number is None else Result(number, job_id, index, *rest)
    return TaskRecord(job_id, index, STATES[state], failures, losses, worker, result, concluded)


def happening_row(record: Happening) -> tuple[Any, ...]:
    """The record in the order of `HAPPENING_COLUMNS`."""
    return (
        record.job_id,
        record.index,
        record.at,
        record.what,
        record.number,
        record.worker,
        record.cause,
        record.detail,
    )


def happening(row: tuple[Any, ...]) -> Happening:
    """The inverse of `happening_row`."""
    job_id, index, at, what, number, worker, cause, detail = row
    return Happening(
        job_id=job_id,
        index=index,
        at=at,
        what=what,
        number=number,
        worker=worker,
        cause=cause,
        detail=detail,
    )


def encode_spec(spec: JobSpec) -> bytes:
    return _encoder.encode(spec)


def encode_ad(ad: WorkerAd | None) -> bytes | None:
    return None if ad is None else _encoder.encode(ad)


def worker_record(row: tuple[Any, ...]) -> WorkerRecord:
    """A worker from a row in the order of `WORKER_COLUMNS`."""
    worker, draining, ad = row
    return WorkerRecord(worker, bool(draining), None if ad is None else _ad_decoder.decode(ad))


def job_record(row: tuple[Any, ...]) -> JobRecord:
    """A job from a row in the order of `JOB_COLUMNS`."""
    job_id, owner, spec, submitted_at, key, state, cancelling, cursor, *counts, ended_at = row
    done, failed, lost, cancelled = counts
    return JobRecord(
        job_id=job_id,
        owner=owner,
        spec=_spec_decoder.decode(spec),
        submitted_at=submitted_at,
        key=key or "",
        state=state,
        cancelling=bool(cancelling),
        cursor=cursor,
        counts=Counts(done=done, failed=failed, lost=lost, cancelled=cancelled),
        ended_at=ended_at,
    )
