"""What is durable, with commits that take time and can be cut short."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from kestrelctl.core.model import FINAL_STATES, Counts, TaskState
from kestrelctl.core.records import (
    JobForgotten,
    JobRecord,
    Progress,
    Record,
    Snapshot,
    TaskRecord,
    UnfinishedJob,
    WorkerGone,
    WorkerRecord,
)
from kestrelctl.simulate.clock import Clock

Action = Callable[[], None]


class Store:
    """Tables, and a group commit: what comes while one commit runs goes into the next.

    Args:
        commit_seconds: bounds of a commit's duration.
        on_committed: called with the records of each commit, before they are in the tables.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        commit_seconds: tuple[float, float],
        on_committed: Callable[[Store, list[Record]], None],
    ) -> None:
        self.jobs: dict[int, JobRecord] = {}
        self.tasks: dict[int, dict[int, TaskRecord]] = {}
        self.workers: dict[str, WorkerRecord] = {}
        self.epoch = 0
        self.next_job_id = 1
        self.slowness = 1.0
        self._clock = clock
        self._random = random
        self._commit_seconds = commit_seconds
        self._on_committed = on_committed
        self._pending: list[Record] = []
        self._pending_actions: list[Action] = []
        self._committing: list[Record] | None = None
        self._committing_actions: list[Action] = []
        self._generation = 0

    @property
    def quiet(self) -> bool:
        """Nothing waits to become durable."""
        return self._committing is None and not self._pending

    def write(self, records: list[Record]) -> None:
        """Puts records into the next commit."""
        self._pending.extend(records)
        if self._committing is None:
            self._begin()

    def when_durable(self, action: Action) -> None:
        """Calls `action` once all that was written so far is durable."""
        if self._pending:
            self._pending_actions.append(action)
        elif self._committing is not None:
            self._committing_actions.append(action)
        else:
            action()

    def _begin(self) -> None:
        self._committing, self._pending = self._pending, []
        self._committing_actions, self._pending_actions = self._pending_actions, []
        seconds = self._random.uniform(*self._commit_seconds) * self.slowness
        self._clock.after(seconds, self._finish, self._generation)

    def _finish(self, generation: int) -> None:
        if generation != self._generation or self._committing is None:
            return
        records, actions = self._committing, self._committing_actions
        self._committing, self._committing_actions = None, []
        self._apply(records)
        if self._pending:
            self._begin()
        for action in actions:
            action()

    def flush(self) -> None:
        """Makes everything durable now."""
        while self._committing is not None:
            self._generation += 1
            self._finish(self._generation)

    def crash(self) -> None:
        """The process that writes dies: of the commit under way all or nothing stays."""
        self._generation += 1
        if self._committing is not None and self._random.random() < 0.5:
            self._apply(self._committing)
        self._committing = None
        self._pending.clear()
        self._pending_actions.clear()
        self._committing_actions.clear()

    def _apply(self, records: list[Record]) -> None:
        self._on_committed(self, records)
        for record in records:
            if isinstance(record, TaskRecord):
                self.tasks[record.job_id][record.index] = record
            elif isinstance(record, Progress):
                job = self.jobs[record.job_id]
                self.jobs[record.job_id] = msgspec.structs.replace(job, cursor=record.cursor)
            elif isinstance(record, JobRecord):
                self.jobs[record.job_id] = record
                self.tasks.setdefault(record.job_id, {})
                self.next_job_id = max(self.next_job_id, record.job_id + 1)
            elif isinstance(record, WorkerRecord):
                self.workers[record.worker] = record
            elif isinstance(record, WorkerGone):
                self.workers.pop(record.worker, None)
            elif isinstance(record, JobForgotten):
                self.jobs.pop(record.job_id, None)
                self.tasks.pop(record.job_id, None)

    def counts(self, job_id: int) -> Counts:
        """How many rows of a job's tasks are in each final state."""
        counts = Counts()
        for row in self.tasks[job_id].values():
            if row.state in FINAL_STATES:
                setattr(counts, row.state, getattr(counts, row.state) + 1)
        return counts

    def bad_rows(self, job_id: int) -> list[tuple[int, str]]:
        """The tasks with a row that ended otherwise than done, with their state."""
        return [
            (index, str(row.state))
            for index, row in sorted(self.tasks[job_id].items())
            if row.state in FINAL_STATES and row.state is not TaskState.DONE
        ]

    def snapshot(self) -> Snapshot:
        """What a new manager starts from; each call is a new epoch."""
        self.epoch += 1
        return Snapshot(
            epoch=self.epoch,
            next_job_id=self.next_job_id,
            jobs=[self._unfinished(job) for job in self.jobs.values() if job.state == "active"],
            workers=list(self.workers.values()),
        )

    def _unfinished(self, job: JobRecord) -> UnfinishedJob:
        rows = self.tasks[job.job_id]
        left = [
            index
            for index in range(job.cursor)
            if index not in rows or rows[index].state not in FINAL_STATES
        ]
        return UnfinishedJob(
            record=msgspec.structs.replace(job, counts=self.counts(job.job_id)),
            unfinished=left,
            counters={
                index: (row.failures, row.losses)
                for index, row in rows.items()
                if row.state not in FINAL_STATES and (row.failures or row.losses)
            },
        )
