"""The values that users and workers hand in: what a job is, what a worker advertises."""

from __future__ import annotations

import enum

import msgspec


class OnWorkerLost(enum.StrEnum):
    """What becomes of an attempt whose worker went offline."""

    REQUEUE = "requeue"
    WAIT = "wait"


class TaskState(enum.StrEnum):
    """Where a task stands. The last four are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


FINAL_STATES = (TaskState.DONE, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as submitted: one command template and an array of tasks.

    Task number i of the array (0 <= i < count) has the id `first + i * step`. Limits count per
    task: a task is given up as failed at its `max_failures`th failed attempt, as lost at its
    `max_losses`th lost worker.
    """

    argv: tuple[str, ...]
    name: str = ""
    count: int = 1
    first: int = 0
    step: int = 1
    items: tuple[str, ...] | None = None  #: one line per task, for `{}` in the command
    env: dict[str, str] = {}
    cleanup: tuple[str, ...] = ()
    cpus: float = 1.0
    memory_bytes: int = 0
    requires: tuple[str, ...] = ()
    priority: int = 100
    max_running: int | None = None
    max_failures: int = 1
    max_losses: int = 5
    time_limit_seconds: float | None = None
    on_worker_lost: OnWorkerLost = OnWorkerLost.REQUEUE

    def task_id(self, index: int) -> int:
        """The id a user sees for the task at `index`."""
        return self.first + index * self.step

    def index_of(self, task_id: int) -> int | None:
        """The index of the task with that id, or None if the array has no such task."""
        index, rest = divmod(task_id - self.first, self.step)
        return index if rest == 0 and 0 <= index < self.count else None


class WorkerAd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself: capacity, tags, and facts for people."""

    cpus: float = 1.0
    memory_bytes: int = 0
    tags: tuple[str, ...] = ()
    host: str = ""
    os: str = ""
    arch: str = ""
    version: str = ""


class Counts(msgspec.Struct, kw_only=True):
    """How many tasks of a job are in each final state."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0

    def total(self) -> int:
        return self.done + self.failed + self.lost + self.cancelled

    def outcome(self) -> str:
        """`done`, `failed` or `cancelled`, for a job whose tasks are all in a final state."""
        if self.failed or self.lost:
            return "failed"
        return "cancelled" if self.cancelled else "done"
