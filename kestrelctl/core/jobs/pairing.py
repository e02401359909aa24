"""The state of a job whose tasks each wait for the task of the same index of another job.

The jobs that a job waits for as a whole are in `parents`.
"""

from __future__ import annotations

from kestrelctl.core.model.index_ranges import IndexRange, IndexRanges
from kestrelctl.core.model.job.after import IfParentFails
from kestrelctl.core.model.wording import plural


class TaskPairing:
    """The tasks that those of one job wait for, as far as that is durable.

    Attributes:
        parent: the job whose tasks they wait for.
        otherwise: what becomes of a task when the parent's task has ended badly.
        ended: the tasks whose parent's task has ended as it should.
        free: those of them beyond the cursor: they may be handed out.
        behind: the tasks below the cursor that may not be handed out yet; they have objects.
        in_vain: the tasks whose parent's task has ended badly and was not brought back.
        cancelled: how many tasks beyond the cursor are cancelled for that; without object or row.
        unsettled: tasks of the parent that have ended badly, as a restart has found, and that have
            had no effect here yet.
        passed: cancelled tasks that the cursor has passed over since, whose rows are to be written.
    """

    __slots__ = (
        "behind",
        "cancelled",
        "ended",
        "free",
        "in_vain",
        "otherwise",
        "parent",
        "passed",
        "unsettled",
    )

    def __init__(self, parent: int, otherwise: IfParentFails) -> None:
        self.parent = parent
        self.otherwise = otherwise
        self.ended = IndexRanges()
        self.free = IndexRanges()
        self.behind: set[int] = set()
        self.in_vain = IndexRanges()
        self.cancelled = 0
        self.passed: list[IndexRange] = []
        self.unsettled: list[IndexRange] = []

    @property
    def cancels(self) -> bool:
        """Whether a task is cancelled when the parent's task has ended badly."""
        return self.otherwise is IfParentFails.CANCEL

    def told(self, waiting: int) -> str:
        """Tells people what the tasks wait for.

        Args:
            waiting: how many tasks wait for theirs.
        """
        found = (
            f"task by task for job {self.parent}: {plural(self.free.total, 'task')} free to start,"
            f" {waiting:,} behind theirs"
        )
        if self.in_vain and self.otherwise is IfParentFails.WAIT:
            found += f", {self.in_vain.total:,} of them in vain until it is retried"
        return found
