"""Whether a computation runs again that had ended well, because only the stage after it failed."""

from __future__ import annotations

from collections.abc import Iterator

from kestrelctl.core.effects import Span
from kestrelctl.core.model.job.task_state import FINAL_STATES, TaskState
from kestrelctl.core.model.records import TaskRecord


class StageAudit:
    """Knows from the machines which attempts failed in their last stage alone.

    When the result of such an attempt counts, its task is over. No attempt of it is handed out
    then, unless its owner has it brought back.
    """

    def __init__(self) -> None:
        self._only_out: set[int] = set()
        #: Tasks that are over because of that, durably.
        self._over: set[tuple[int, int]] = set()

    def only_out_failed(self, number: int) -> None:
        """Notes an attempt whose command ended well on its machine, but not the stage after it."""
        self._only_out.add(number)

    def row(self, row: TaskRecord) -> str:
        """Tells what is wrong with a row that became durable; empty if nothing is."""
        task = (row.job_id, row.index)
        self.decided(row)
        if row.result is None or row.result.number not in self._only_out:
            return ""
        if row.state is TaskState.FAILED:
            self._over.add(task)
        if row.state in (TaskState.FAILED, TaskState.CANCELLED):
            return ""
        return f"task {task[0]}/{task[1]} is {row.state}, and only the end of its files had failed"

    def decided(self, row: TaskRecord) -> None:
        """Notes the state that a task is in from now on: its owner may have had it brought back."""
        if row.state not in FINAL_STATES:
            self._over.discard((row.job_id, row.index))

    def handed_out(self, span: Span) -> Iterator[str]:
        """Tells what is wrong with attempts that are handed out, in words."""
        number, job_id, index, n, _ = span
        for k in range(n) if self._over else ():
            if (job_id, index + k) in self._over:
                task = f"task {job_id}/{index + k}"
                yield f"{task} runs again as {number + k}: only its stage out had failed"
