"""Where a task stands, as users and the store see it, and how many of a job's tasks stand where."""

from __future__ import annotations

import enum

import msgspec


class TaskState(enum.StrEnum):
    """Where a task stands. The last four are final."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    CANCELLED = "cancelled"


FINAL_STATES = (TaskState.DONE, TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)


class Counts(msgspec.Struct, kw_only=True):
    """How many tasks of a job are in each final state."""

    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0

    def total(self) -> int:
        """All of them."""
        return self.done + self.failed + self.lost + self.cancelled

    def copy(self) -> Counts:
        """The same numbers, which do not change with these."""
        return Counts(done=self.done, failed=self.failed, lost=self.lost, cancelled=self.cancelled)

    def outcome(self) -> str:
        """`done`, `failed` or `cancelled`, for a job whose tasks are all in a final state."""
        if self.failed or self.lost:
            return "failed"
        return "cancelled" if self.cancelled else "done"
