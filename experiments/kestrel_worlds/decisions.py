"""The decisions of a pool: which worker got which task, under which attempt, and how that ended."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.core.effects import Run
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.store.port import StoreRecord

_ENDS = {
    Outcome.DONE: "done",
    Outcome.FAILED: "failed",
    Outcome.KILLED: "killed",
    Outcome.UNABLE: "unable",
    Outcome.GOES_ON: "goes on",
}


class Decisions:
    """Remembers the decisions of one pool without their moments, and without any message.

    They do not change with another encoding, another name of a message or a class, or another order
    of what happens at once.
    """

    def __init__(self) -> None:
        #: attempt -> (job, index, worker)
        self._attempts: dict[int, tuple[int, int, str]] = {}
        #: attempt -> how it ended, as far as that counted
        self._ends: dict[int, str] = {}
        self._tasks: dict[tuple[int, int], TaskRecord] = {}
        self._jobs: dict[int, JobRecord] = {}

    def handed_out(self, effect: Run) -> None:
        """Notes attempts that the pool sends to a worker."""
        for number, job_id, index, n, _ in effect.spans:
            for k in range(n):
                self._attempts[number + k] = (job_id, index + k, effect.worker)

    def committed(self, records: Sequence[StoreRecord]) -> None:
        """Notes records that became durable."""
        for record in records:
            if isinstance(record, TaskRecord):
                self._tasks[record.job_id, record.index] = record
                if record.result is not None:
                    self._ends[record.result.number] = _ENDS[record.result.outcome]
            elif isinstance(record, JobRecord):
                self._jobs[record.job_id] = record

    def lines(self) -> list[str]:
        """Returns a line for each attempt, by their numbers, then for each task and each job."""
        found = [
            f"attempt {number} of {job_id}/{index} at {worker}: {self._ends.get(number, 'nothing')}"
            for number, (job_id, index, worker) in sorted(self._attempts.items())
        ]
        found += [
            f"task {job_id}/{index}: {row.state}, {row.failures} failures, {row.losses} losses"
            for (job_id, index), row in sorted(self._tasks.items())
        ]
        found += [f"job {job_id}: {row.state}" for job_id, row in sorted(self._jobs.items())]
        return found
