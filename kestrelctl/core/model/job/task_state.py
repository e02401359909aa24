"""The state of a task, as users and the store see it, and the counts of a job's final states."""

from __future__ import annotations

import enum

import msgspec


class TaskState(enum.StrEnum):
    """The state of a task. The last four are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


FINAL_STATES = (TaskState.DONE, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)


class Counts(msgspec.Struct, kw_only=True):
    """The number of tasks of a job in each final state."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0

    def total(self) -> int:
        """The number of tasks in any final state."""
        return self.done + self.failed + self.lost + self.cancelled

    def copy(self) -> Counts:
        """The same numbers, which do not change with these."""
        return Counts(done=self.done, failed=self.failed, lost=self.lost, cancelled=self.cancelled)

    def outcome(self) -> str:
        """The outcome of a job whose tasks have all ended: `done`, `failed` or `cancelled`."""
        if self.failed or self.lost:
            return "failed"
        return "cancelled" if self.cancelled else "done"
