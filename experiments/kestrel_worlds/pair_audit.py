"""Checks, by what is durable, that tasks are handed out after those that they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kestrelctl.core.effects import Span
from kestrelctl.core.model.job.after import IfParentFails
from kestrelctl.core.model.job.task_state import FINAL_STATES, TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord

#: (job id, index)
Which = tuple[int, int]


class PairAudit:
    """Knows how each task ever ended, durably, whether it was brought back or not."""

    def __init__(self) -> None:
        self._done: set[Which] = set()
        self._bad: set[Which] = set()
        self._stopped: set[int] = set()

    def committed(self, record: TaskRecord | JobRecord) -> None:
        """Notes a record that is durable."""
        if isinstance(record, JobRecord):
            if record.cancelling or record.state != "active":
                self._stopped.add(record.job_id)
        elif record.state in FINAL_STATES:
            ended = self._done if record.state is TaskState.DONE else self._bad
            ended.add((record.job_id, record.index))

    def sent(self, spans: Iterable[Span], jobs: Mapping[int, JobRecord]) -> Iterator[str]:
        """Checks attempts that are handed out: what they wait for must have ended."""
        for _, job_id, first, n, _ in spans:
            job = jobs.get(job_id)
            parent = 0 if job is None else job.spec.after_each
            for index in range(first, first + n) if parent else ():
                if not self._may_start(job_id, index, jobs):
                    yield f"task {index} of job {job_id} starts before that of job {parent} ended"

    def _may_start(self, job_id: int, index: int, jobs: Mapping[int, JobRecord]) -> bool:
        spec = jobs[job_id].spec
        if (spec.after_each, index) in self._done:
            return True
        any_end = spec.if_parent_fails is IfParentFails.RUN
        return any_end and self._ended_badly(spec.after_each, index, jobs)

    def _ended_badly(self, job_id: int, index: int, jobs: Mapping[int, JobRecord]) -> bool:
        """Whether a task had no good end; no row tells this of one that never started."""
        if (job_id, index) in self._bad or job_id in self._stopped:
            return True
        spec = jobs[job_id].spec
        cancels = spec.if_parent_fails is IfParentFails.CANCEL
        return bool(spec.after_each) and cancels and self._ended_badly(spec.after_each, index, jobs)
