"""A store that ends with its process, for tests and simulated worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from kestrelctl.core.model.records import (
    Happening,
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
from kestrelctl.core.model.task_state import FINAL_STATES, Counts, TaskState
from kestrelctl.errors import StoreFull
from kestrelctl.store.port import Statistics


class MemoryStore:
    """Keeps everything in dictionaries. Opening it again shows what a restarted manager would find.

    Attributes:
        full: set it to make commits fail, as they do on a full disk.
        secret: what seals are made with.
    """

    def __init__(self) -> None:
        self.full = False
        self.secret = b"of a store that holds no secrets"
        self._epoch = 0
        self._last_job_id = 0
        self._jobs: dict[int, JobRecord] = {}
        self._tasks: dict[int, dict[int, TaskRecord]] = {}
        self._happenings: dict[int, list[Happening]] = {}
        self._workers: dict[str, WorkerRecord] = {}
        self._commits = 0
        self._records = 0

    @property
    def damaged(self) -> Mapping[int, str]:
        return {}

    def notes(self) -> list[str]:
        return []

    def open(self) -> Snapshot:
        self._epoch += 1
        self._commits = self._records = 0
        jobs = [job for _, job in sorted(self._jobs.items()) if job.state == "active"]
        return Snapshot(
            epoch=self._epoch,
            secret=self.secret,
            next_job_id=self._last_job_id + 1,
            jobs=[self._unfinished(job) for job in jobs],
            workers=[self._workers[worker] for worker in sorted(self._workers)],
        )

    def _unfinished(self, job: JobRecord) -> UnfinishedJob:
        tasks = self._tasks.get(job.job_id, {})
        final = [task for task in tasks.values() if task.state in FINAL_STATES]
        ended = {task.index for task in final}
        cursor = max([job.cursor, *(index + 1 for index in tasks)])
        counts = Counts()
        for task in final:
            setattr(counts, task.state.value, getattr(counts, task.state.value) + 1)
        return UnfinishedJob(
            record=replace(job, cursor=cursor, counts=counts),
            unfinished=[index for index in range(cursor) if index not in ended],
            counters={
                task.index: (task.failures, task.losses)
                for task in tasks.values()
                if task.index not in ended and (task.failures or task.losses)
            },
            concluded={
                task.index: task.concluded
                for task in tasks.values()
                if task.index not in ended and task.concluded
            },
            happenings=len(self._happenings.get(job.job_id, ())),
        )

    async def commit(self, records: Sequence[Record]) -> None:
        if self.full:
            raise StoreFull(cause="the store in memory was told to be full")
        self._keep(records)

    def _keep(self, records: Sequence[Record]) -> None:
        """What a commit comes to."""
        for record in records:
            self._apply(record)
        if records:
            self._commits += 1
            self._records += len(records)

    def _apply(self, record: Record) -> None:
        match record:
            case TaskRecord():
                self._tasks.setdefault(record.job_id, {})[record.index] = record
            case Progress():
                job = self._jobs.get(record.job_id)
                if job is not None:
                    self._jobs[record.job_id] = replace(job, cursor=record.cursor)
            case JobRecord():
                self._jobs[record.job_id] = record
                self._last_job_id = max(self._last_job_id, record.job_id)
            case Happening():
                self._happenings.setdefault(record.job_id, []).append(record)
            case WorkerRecord():
                self._workers[record.worker] = record
            case WorkerGone():
                self._workers.pop(record.worker, None)
            case JobForgotten():
                self._jobs.pop(record.job_id, None)
                self._tasks.pop(record.job_id, None)
                self._happenings.pop(record.job_id, None)

    def jobs(
        self,
        *,
        ids: Sequence[int] | None = None,
        states: Sequence[str] = (),
        owner: str | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        fitting = [
            job
            for _, job in sorted(self._jobs.items())
            if (ids is None or job.job_id in ids)
            and (not states or job.state in states)
            and (owner is None or job.owner == owner)
        ]
        newest = fitting[-limit:] if limit > 0 else []
        return [replace(job, spec=job.spec.head()) for job in newest]

    def job(self, job_id: int) -> JobRecord | None:
        return self._jobs.get(job_id)

    def job_of_key(self, owner: str, key: str) -> JobRecord | None:
        return next(
            (job for job in self._jobs.values() if (job.owner, job.key) == (owner, key)), None
        )

    def tasks(
        self,
        job_id: int,
        *,
        states: Sequence[TaskState] = (),
        after: int = -1,
        limit: int = 1000,
        indexes: Sequence[int] = (),
    ) -> list[TaskRecord]:
        if job_id not in self._jobs:
            return []
        fitting = [
            task
            for index, task in sorted(self._tasks.get(job_id, {}).items())
            if index > after
            and (not states or task.state in states)
            and (not indexes or index in indexes)
        ]
        return fitting[: max(limit, 0)]

    def ended_badly(self, job_id: int, indexes: Sequence[int] = ()) -> list[tuple[int, str]]:
        bad = [state for state in FINAL_STATES if state is not TaskState.DONE]
        found = self.tasks(
            job_id, states=bad, indexes=indexes, limit=len(self._tasks.get(job_id, {}))
        )
        return [(task.index, task.state.value) for task in found]

    def happenings(
        self, job_id: int, *, indexes: Sequence[int] = (), limit: int = 1000
    ) -> list[Happening]:
        if job_id not in self._jobs:
            return []
        fitting = [
            each
            for each in self._happenings.get(job_id, [])
            if not indexes or each.index in (-1, *indexes)
        ]
        return fitting[-limit:] if limit > 0 else []

    def statistics(self) -> Statistics:
        return Statistics(
            commits=self._commits, commit_seconds=0.0, records=self._records, bytes_on_disk=0
        )

    def close(self) -> None:
        pass
