"""What a user submits: one command template and an array of tasks."""

from __future__ import annotations

import enum

import msgspec


class OnWorkerLost(enum.StrEnum):
    """What becomes of an attempt whose worker went offline."""

    REQUEUE = "requeue"
    WAIT = "wait"


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as submitted.

    Task number i of the array (0 <= i < count) has the id `first + i * step`. Limits count per
    task: a task is given up as failed at its `max_failures`th failed attempt, as lost at its
    `max_losses`th lost worker.

    Attributes:
        items: one line per task, for `{}` in the command.
        request: how much of each asset a task asks for, in natural units; always some `cpus`.
    """

    argv: tuple[str, ...]
    name: str = ""
    count: int = 1
    first: int = 0
    step: int = 1
    items: tuple[str, ...] | None = None
    env: dict[str, str] = {}
    cleanup: tuple[str, ...] = ()
    request: dict[str, float] = msgspec.field(default_factory=lambda: {"cpus": 1.0})
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
