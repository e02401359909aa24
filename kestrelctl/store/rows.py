"""Records as rows of the SQLite store, and back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.after import problem_with_parents
from kestrelctl.core.model.job.checkpoint import Checkpoint, can_be_given
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import StageRun
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord, WorkerRecord
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.store.sums import Used

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
    "job_id, idx, state, failures, losses, concluded, retried_after, memory_step,"
    " least_seconds, checkpoint, worker, number, outcome, started_at, wall_seconds,"
    " waited_seconds, cpu_seconds, peak_bytes, exit_code, signal, reason, stdout, stderr,"
    " stdout_bytes, stderr_bytes, output_files, outputs, stored_seconds, stdout_stored,"
    " stderr_stored, stages"
)
TASK_PARAMETERS = ", ".join("?" for _ in TASK_COLUMNS.split(","))

#: The order of `happening_row`.
HAPPENING_COLUMNS = "job_id, idx, at, what, number, worker, cause, detail"

#: The order in which `job_record` wants a job's row, with its whole spec.
JOB_COLUMNS = (
    "job_id, owner, spec, submitted_at, submission_key, state, cancelling, cursor, done, failed,"
    " lost, cancelled, ended_at, untold, unmailed, stopped_by, hold, freed, settled, resumed"
)
#: The same, with the head of the spec instead.
HEAD_COLUMNS = JOB_COLUMNS.replace("spec", "head")

#: The columns of `store.sums.Used`, in its order.
USED_COLUMNS = Used.__struct_fields__

#: The order in which `worker_record` wants a worker's row.
WORKER_COLUMNS = "worker, draining, ad"

_NO_RESULT = (None,) * 20
_encoder = msgspec.json.Encoder()
_spec_decoder = msgspec.json.Decoder(JobSpec)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_hold_decoder = msgspec.json.Decoder(Hold)
_stored_decoder = msgspec.json.Decoder(StoredFile)
_stages_decoder = msgspec.json.Decoder(tuple[StageRun, ...])
_checkpoint_decoder = msgspec.json.Decoder(Checkpoint)
_settled_decoder = msgspec.json.Decoder(dict[int, str])
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
            record.retried_after,
            record.memory_step,
            record.least_seconds,
            None if record.checkpoint is None else _encoder.encode(record.checkpoint),
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
        record.retried_after,
        record.memory_step,
        record.least_seconds,
        None if record.checkpoint is None else _encoder.encode(record.checkpoint),
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
        result.output_files,
        None if result.outputs is None else _encoder.encode(result.outputs),
        result.stored_seconds,
        None if result.stdout_stored is None else _encoder.encode(result.stdout_stored),
        None if result.stderr_stored is None else _encoder.encode(result.stderr_stored),
        _encoder.encode(result.stages) if result.stages else None,
    )


def task_record(row: tuple[Any, ...]) -> TaskRecord:
    """The inverse of `task_row`."""
    job_id, index, state, failures, losses, concluded, retried_after, memory_step, *others = row
    least_seconds, checkpoint, worker, number, *rest = others
    result = None
    if number is not None:
        rest[-10:-8] = map(_as_bytes, rest[-10:-8])
        files, outputs, stored_seconds, stdout, stderr, stages = rest[-6:]
        rest[-6:] = (
            files or 0,
            _stored_file(outputs),
            stored_seconds or 0.0,
            _stored_file(stdout),
            _stored_file(stderr),
            () if stages is None else _stages_decoder.decode(stages),
        )
        result = Result(number, job_id, index, *rest)
    return TaskRecord(
        job_id,
        index,
        STATES[state],
        failures,
        losses,
        worker,
        result,
        concluded,
        retried_after,
        memory_step,
        least_seconds,
        decode_checkpoint(checkpoint),
    )


def decode_checkpoint(row: bytes | None) -> Checkpoint | None:
    """A checkpoint from its column; None if there is none, or if it is damaged: the task begins
    anew then.
    """
    try:
        found = None if row is None else _checkpoint_decoder.decode(row)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None
    return found if found is not None and can_be_given(found.stored) else None


def _as_bytes(tail: bytes | str) -> bytes:
    """The end of an output. Earlier versions stored it as text."""
    return tail if isinstance(tail, bytes) else tail.encode()


def _stored_file(text: bytes | None) -> StoredFile | None:
    return None if text is None else _stored_decoder.decode(text)


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


def recounted(spec: bytes | str, count: int) -> bytes:
    """A stored spec with another number of tasks: all else, which may be long, stays as it is.

    Args:
        spec: JSON.
    """
    fields = _fields_decoder.decode(spec)
    return _encoder.encode({**fields, "count": count})


def encode_hold(hold: Hold | None) -> bytes | None:
    return None if hold is None else _encoder.encode(hold)


def encode_settled(settled: dict[int, str]) -> bytes | None:
    return _encoder.encode(settled) if settled else None


def encode_ad(ad: WorkerAd | None) -> bytes | None:
    return None if ad is None else _encoder.encode(ad)


def worker_record(row: tuple[Any, ...]) -> WorkerRecord:
    """A worker from a row in the order of `WORKER_COLUMNS`; without its ad if that is damaged.

    The worker says again what it offers as soon as it speaks.
    """
    worker, draining, ad = row
    try:
        said = None if ad is None else _ad_decoder.decode(ad)
    except (msgspec.MsgspecError, TypeError, ValueError):
        said = None
    return WorkerRecord(worker, bool(draining), said)


class Unreadable(ValueError):
    """A row says what cannot be: the store is damaged there."""


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Raises Unreadable if the block finds something that no record can hold.

    Args:
        what: what is read, for the message.
    """
    try:
        yield
    except (msgspec.MsgspecError, TypeError, ValueError, LookupError) as error:
        raise Unreadable(f"{what}: {error!r}") from error


def job_record(row: tuple[Any, ...]) -> JobRecord:
    """A job from a row in the order of `JOB_COLUMNS` or `HEAD_COLUMNS`.

    Raises:
        Unreadable: it is damaged.
    """
    with readable("its row"):
        record = _job_record(row)
        _must_make_sense(record)
        return record


def _must_make_sense(record: JobRecord) -> None:
    """Raises ValueError for what no manager writes: a bit that flipped may leave valid JSON."""
    spec, counts = record.spec, record.counts
    whole = (record.job_id, record.cursor, counts.done, counts.failed, counts.lost)
    others = (counts.cancelled, record.resumed)
    if not all(isinstance(n, int) and n >= 0 for n in (*whole, *others)):
        raise ValueError("a count is no natural number")
    if not isinstance(record.submitted_at, float):
        raise ValueError("its moment of submission is none")
    if not isinstance(record.owner, str) or "\ufffd" in record.owner or not record.owner:
        raise ValueError("its owner is no address")
    if record.state not in ("active", "done", "failed", "cancelled"):
        raise ValueError(f"there is no state {record.state!r}")
    if problem := problem_with_parents(spec.after):
        raise ValueError(problem)
    if spec.after_each < 0:
        raise ValueError(f"its tasks wait for those of job {spec.after_each}")
    if record.cursor > spec.count or not spec.program.argv:
        raise ValueError(f"a cursor of {record.cursor} in {spec.count} tasks")
    if spec.items is not None and len(spec.items) != spec.count:
        raise ValueError(f"{len(spec.items)} items for {spec.count} tasks")


def _job_record(row: tuple[Any, ...]) -> JobRecord:
    job_id, owner, spec, submitted_at, key, state, cancelling, cursor, *rest = row
    done, failed, lost, cancelled, ended_at, untold, unmailed, *others = rest
    stopped_by, hold, freed, settled, resumed = others
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
        untold=bool(untold),
        unmailed=bool(unmailed),
        stopped_by=stopped_by,
        hold=None if hold is None else _hold_decoder.decode(hold),
        freed=bool(freed),
        settled={} if settled is None else _settled_decoder.decode(settled),
        resumed=resumed,
    )
