"""What is durable: the rows of the store, as values."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model import Counts, JobSpec, TaskState
from kestrelctl.core.result import Result


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job. Written once when submitted, again when it ends or is brought back."""

    job_id: int
    owner: str
    spec: JobSpec
    submitted_at: float
    state: str = "active"  #: active, then done, failed or cancelled
    cancelling: bool = False
    cursor: int = 0  #: how many tasks of the array were ever dispatched
    counts: Counts = msgspec.field(default_factory=Counts)
    ended_at: float | None = None


class Progress(msgspec.Struct, frozen=True):
    """How far a job's array was dispatched."""

    job_id: int
    cursor: int


class TaskRecord(msgspec.Struct, frozen=True):
    """A task that ended, or that has failures or losses to remember.

    Attributes:
        concluded: attempts up to this number are over. A result of one of them that comes (again)
            after a restart is not counted (again).
    """

    job_id: int
    index: int
    state: TaskState
    failures: int
    losses: int
    worker: str
    result: Result | None
    concluded: int = 0


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker that joined: whom to ask after a restart, and whether it is being drained."""

    worker: str
    draining: bool = False


class WorkerGone(msgspec.Struct, frozen=True):
    """A worker that left for good."""

    worker: str


class JobForgotten(msgspec.Struct, frozen=True):
    """An ended job whose rows shall go."""

    job_id: int


Record = JobRecord | Progress | TaskRecord | WorkerRecord | WorkerGone | JobForgotten


class UnfinishedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An active job as found in the store: its row and what is left below its cursor.

    The record's counts are those of the stored tasks.
    """

    record: JobRecord
    unfinished: list[int]  #: indexes below the cursor without a final state
    counters: dict[int, tuple[int, int]]  #: index -> (failures, losses), where not both zero
    concluded: dict[int, int] = {}  #: index -> `TaskRecord.concluded`, where not zero


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a manager needs to go on after a restart."""

    epoch: int  #: this start's number; higher than any before
    next_job_id: int
    jobs: list[UnfinishedJob]
    workers: list[WorkerRecord]
