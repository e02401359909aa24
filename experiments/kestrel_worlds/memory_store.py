"""A store that ends with its process, for simulated worlds and tests of what needs no history."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeVar, Unpack

from msgspec.structs import replace

from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.roll import Roll
from kestrelctl.core.model.index_ranges import as_ranges
from kestrelctl.core.model.job.after import ids_of
from kestrelctl.core.model.job.light_spec import Apart, is_long, lightened
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import FINAL_STATES, Counts, TaskState
from kestrelctl.core.model.records import (
    EndedTasks,
    FlockPeer,
    FlockPeerGone,
    Happening,
    JobForgotten,
    JobRecord,
    OwnerTold,
    Progress,
    Snapshot,
    StoredRecord,
    TaskRecord,
    UnfinishedJob,
    UserGone,
    UserRecord,
    WorkerGone,
    WorkerRecord,
    ended_tasks,
)
from kestrelctl.core.model.setting import Setting, SettingGone
from kestrelctl.core.settings.table import KINDS
from kestrelctl.errors import StoreFull
from kestrelctl.store.edges import Edge, edges_of
from kestrelctl.store.item_window import ItemWindow, whole_window
from kestrelctl.store.port import CoreReads, StoreRecord, WhichJobs, at_hand

V = TypeVar("V")


class MemoryStore:
    """A `store.port.CoreStore` in dictionaries: it keeps what the core writes and goes on from.

    Opening it again shows what a restarted manager would find. It keeps nothing of what only people
    are shown, and no sums: a `SqliteStore` does.

    Attributes:
        full: set it to make commits fail, as they do on a full disk.
        secret: the secret with which seals are made.
        term: the term of the manager that opens it next.
    """

    def __init__(self) -> None:
        self.full = False
        self.secret = b"of a store that holds no secrets"
        self.term = 0
        self._epoch = 0
        self._last_job_id = 0
        self._jobs: dict[int, JobRecord] = {}
        self._tasks: dict[int, dict[int, TaskRecord]] = {}
        #: job -> how much has happened to it
        self._happenings: Counter[int] = Counter()
        self._workers: dict[str, WorkerRecord] = {}
        self._settings: dict[type[Setting], dict[str, Setting]] = {k.struct: {} for k in KINDS}
        self._users: dict[str, UserRecord] = {}
        self._flock_peers: dict[str, FlockPeer] = {}
        self._stored: dict[tuple[str, int], StoredRecord] = {}
        self._roll = Roll()
        self._last_member_event = 0

    @property
    def damaged(self) -> Mapping[int, str]:
        return {}

    def open(self) -> Snapshot:
        self._epoch += 1
        jobs = [job for job in _in_order(self._jobs) if job.state == "active"]
        return Snapshot(
            epoch=self._epoch,
            term=self.term,
            secret=self.secret,
            next_job_id=self._last_job_id + 1,
            jobs=[self._unfinished(job) for job in jobs],
            workers=_in_order(self._workers),
            settings=[each for found in self._settings.values() for each in _in_order(found)],
            users=_in_order(self._users),
            flock_peers=_in_order(self._flock_peers),
            stored=_in_order(self._stored),
            parents=self._ended_parents(jobs),
            paired=self._ended_pairs(jobs),
        )

    def close(self) -> None:
        pass

    async def ask(self, question: Callable[[CoreReads], V]) -> V:
        return question(self)

    def _ended_pairs(self, active: Sequence[JobRecord]) -> dict[int, EndedTasks]:
        named = {job.spec.after_each for job in active} & self._jobs.keys()
        ended = (self._jobs[job_id] for job_id in named if self._jobs[job_id].state != "active")
        return {job.job_id: ended_tasks(job, self.ended_badly(job.job_id)) for job in ended}

    def _ended_parents(self, active: Sequence[JobRecord]) -> dict[int, str]:
        waiting = [job.spec.after for job in active if not job.freed]
        named = {parent for after in waiting for parent in ids_of(after)}
        found = (self._jobs[parent] for parent in named if parent in self._jobs)
        return {job.job_id: job.state for job in found if job.state != "active"}

    def _unfinished(self, job: JobRecord) -> UnfinishedJob:
        tasks = self._tasks.get(job.job_id, {})
        final = [task for task in tasks.values() if task.state in FINAL_STATES]
        left = [task for task in tasks.values() if task.state not in FINAL_STATES]
        ended = {task.index for task in final}
        cursor = max([job.cursor, *(index + 1 for index in tasks)])
        counts = Counts()
        for task in final:
            setattr(counts, task.state.value, getattr(counts, task.state.value) + 1)
        spec = lightened(job.spec)
        return UnfinishedJob(
            record=replace(job, cursor=cursor, counts=counts, spec=spec),
            unfinished=[index for index in range(cursor) if index not in ended],
            counters={t.index: (t.failures, t.losses) for t in left if t.failures or t.losses},
            concluded={t.index: t.concluded for t in left if t.concluded},
            retried_after={t.index: t.retried_after for t in left if t.retried_after},
            memory_steps={t.index: t.memory_step for t in left if t.memory_step},
            least_seconds={t.index: t.least_seconds for t in left if t.least_seconds},
            checkpoints={t.index: t.checkpoint for t in left if t.checkpoint is not None},
            happenings=self._happenings[job.job_id],
            bad=as_ranges(sorted(t.index for t in final if t.state is not TaskState.DONE)),
            apart=None if spec is job.spec else _apart(job.spec),
        )

    async def commit(
        self, records: Sequence[StoreRecord], on_delay: Callable[[str], None] | None = None
    ) -> None:
        if self.full:
            raise StoreFull(cause="the store in memory was told to be full")
        self._keep(records)

    def _keep(self, records: Sequence[StoreRecord]) -> None:
        """Carries out a commit."""
        for record in records:
            self._apply(record)

    def _apply(self, record: StoreRecord) -> None:
        """Keeps a record, unless nobody goes on from it."""
        match record:
            case TaskRecord():
                self._tasks.setdefault(record.job_id, {})[record.index] = record
            case Progress():
                job = self._jobs.get(record.job_id)
                if job is not None:
                    self._jobs[record.job_id] = replace(job, cursor=record.cursor)
            case JobRecord():
                self._jobs[record.job_id] = self._with_spec(record)
                self._last_job_id = max(self._last_job_id, record.job_id)
            case OwnerTold():
                job = self._jobs.get(record.job_id)
                if job is not None and job.ended_at == record.ended_at:
                    told = {"unmailed" if record.by_mail else "untold": False}
                    self._jobs[record.job_id] = replace(job, **told)
            case JobForgotten():
                self._jobs.pop(record.job_id, None)
                self._tasks.pop(record.job_id, None)
                self._happenings.pop(record.job_id, None)
            case Happening():
                self._happenings[record.job_id] += 1
            case WorkerRecord():
                self._workers[record.worker] = record
            case WorkerGone():
                self._workers.pop(record.worker, None)
            case MembershipEvent():
                self._last_member_event = record.number
                self._roll.takes(record.kind, record.worker)
            case Setting():
                self._settings[type(record)][record.name] = record
            case SettingGone():
                self._settings[record.kind].pop(record.name, None)
            case UserRecord():
                self._users[record.name] = record
            case UserGone():
                self._users.pop(record.name, None)
            case StoredRecord():
                self._stored.pop((record.owner, record.hour), None)
                if record.size_bytes:
                    self._stored[record.owner, record.hour] = record
            case FlockPeer():
                self._flock_peers[record.pool] = record
            case FlockPeerGone():
                self._flock_peers.pop(record.pool, None)

    def _with_spec(self, record: JobRecord) -> JobRecord:
        """A job with its whole spec, as its first record has it; a service may have more copies."""
        known = self._jobs.get(record.job_id)
        if known is None:
            return record
        spec = known.spec
        if spec.service:
            spec = replace(spec, count=record.spec.count)
        return replace(record, spec=spec)

    def items(self, job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        job = self._jobs.get(job_id)
        return at_hand(lambda: whole_window(job.spec.items if job else None, index))

    def program(self, job_id: int) -> asyncio.Future[Program | None]:
        job = self._jobs.get(job_id)
        return at_hand(lambda: job.spec.program if job else None)

    def jobs(
        self,
        *,
        ids: Sequence[int] | None = None,
        states: Sequence[str] = (),
        owner: str | None = None,
        name: str = "",
        before: int | None = None,
        ended_since: float | None = None,
        ended_of: str | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        fitting = [
            job
            for job in self._fitting(ids, states, owner, name, ended_since, ended_of)
            if before is None or job.job_id < before
        ]
        newest = fitting[-limit:] if limit > 0 else []
        return [replace(job, spec=job.spec.head()) for job in newest]

    def job_ids(self, **which: Unpack[WhichJobs]) -> list[int]:
        return [job.job_id for job in self._fitting(**which)]

    def count_jobs(self, **which: Unpack[WhichJobs]) -> int:
        return len(self._fitting(**which))

    def _fitting(
        self,
        ids: Sequence[int] | None = None,
        states: Sequence[str] = (),
        owner: str | None = None,
        name: str = "",
        ended_since: float | None = None,
        ended_of: str | None = None,
    ) -> list[JobRecord]:
        wanted = None if ids is None else set(ids)
        return [
            job
            for job in _in_order(self._jobs)
            if (wanted is None or job.job_id in wanted)
            and (not states or job.state in states)
            and (owner is None or job.owner == owner)
            and (not name or fnmatchcase(job.spec.name, name))
            and (ended_since is None or (job.ended_at is not None and job.ended_at >= ended_since))
            and (ended_of is None or job.state == "active" or job.owner == ended_of)
        ]

    def untold(self, limit: int) -> list[JobRecord]:
        found = [job for job in _in_order(self._jobs) if job.untold]
        return [replace(job, spec=job.spec.head()) for job in found[:limit]]

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

    def edges(
        self, *, ids: Sequence[int] | None = None, above: int = 0, limit: int | None = None
    ) -> list[Edge]:
        wanted = None if ids is None else set(ids)
        found = [
            edge
            for job_id, job in sorted(self._jobs.items())
            if job_id > above and (wanted is None or job_id in wanted)
            for edge in edges_of(job_id, job.spec)
        ]
        return found[:limit]

    def ended_badly(self, job_id: int, indexes: Sequence[int] = ()) -> list[tuple[int, str]]:
        bad = [state for state in FINAL_STATES if state is not TaskState.DONE]
        found = self.tasks(
            job_id, states=bad, indexes=indexes, limit=len(self._tasks.get(job_id, {}))
        )
        return [(task.index, task.state.value) for task in found]

    def count_happenings(self, job_id: int) -> int:
        return self._happenings[job_id] if job_id in self._jobs else 0

    def members(self) -> list[str]:
        return self._roll.present

    def last_member_event(self) -> int:
        return self._last_member_event


def _apart(spec: JobSpec) -> Apart:
    """Returns what the light form of a spec lacks."""
    return Apart(
        spec_bytes=encoded_bytes(spec), items=spec.items is not None, program=is_long(spec)
    )


def _in_order(found: Mapping[Any, V]) -> list[V]:
    """Lists what there is in the order of its keys."""
    return [found[key] for key in sorted(found)]
