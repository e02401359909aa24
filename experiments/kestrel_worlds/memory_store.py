"""A store that ends with its process, for tests and simulated worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from msgspec.structs import replace

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.event_records import MOST_DROPPED, EventsDropped
from kestrelctl.core.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.core.membership.roll import Roll
from kestrelctl.core.membership.worker_group import WorkerGroup, WorkerGroupGone
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.index_ranges import as_ranges
from kestrelctl.core.model.job.after import ids_of
from kestrelctl.core.model.job.task_state import FINAL_STATES, Counts, TaskState
from kestrelctl.core.model.records import (
    EndedTasks,
    FlockPeer,
    FlockPeerGone,
    FlockRuleGone,
    GroupGone,
    GroupRecord,
    Happening,
    JobForgotten,
    JobRecord,
    OwnerTold,
    PolicyGone,
    PolicyRecord,
    Progress,
    Snapshot,
    StoredRecord,
    TaskRecord,
    TokenGone,
    TokenRecord,
    UnfinishedJob,
    UserGone,
    UserRecord,
    WorkerGone,
    WorkerRecord,
    ended_tasks,
)
from kestrelctl.core.triggers.fired import MOST_DROPPED as MOST_FIRED_DROPPED
from kestrelctl.core.triggers.fired import FiredDropped, TriggerFired
from kestrelctl.core.triggers.recorded_moment import MomentRecorded, MomentsDropped
from kestrelctl.errors import StoreFull
from kestrelctl.store.edges import Edge, edges_of
from kestrelctl.store.port import Statistics
from kestrelctl.store.store_record import StoreRecord
from kestrelctl.store.sums import (
    Measures,
    Spread,
    Used,
    by_job,
    day_of,
    sampled_indexes,
    spread,
    summed,
)


class MemoryStore:
    """Keeps everything in dictionaries. Opening it again shows what a restarted manager would find.

    Args:
        now: seconds since the epoch.

    Attributes:
        full: set it to make commits fail, as they do on a full disk.
        secret: what seals are made with.
        term: of the manager that opens it next.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        self._now = now
        self.full = False
        self.secret = b"of a store that holds no secrets"
        self.term = 0
        self._epoch = 0
        self._last_job_id = 0
        self._jobs: dict[int, JobRecord] = {}
        self._tasks: dict[int, dict[int, TaskRecord]] = {}
        self._happenings: dict[int, list[Happening]] = {}
        self._workers: dict[str, WorkerRecord] = {}
        self._policies: dict[str, PolicyRecord] = {}
        self._tokens: dict[str, TokenRecord] = {}
        self._users: dict[str, UserRecord] = {}
        self._groups: dict[str, GroupRecord] = {}
        self._flock_rules: dict[str, FlockRule] = {}
        self._flock_peers: dict[str, FlockPeer] = {}
        self._stored: dict[tuple[str, int], StoredRecord] = {}
        self._member_events: list[MembershipEvent] = []
        self._lines: dict[str, dict[int, HandlerAwaits]] = {}
        self._fired: list[TriggerFired] = []
        self._courses: dict[str, tuple[float, int]] = {}
        self._moments: dict[int, MomentRecorded] = {}
        self._roll = Roll()
        self._worker_groups: dict[str, WorkerGroup] = {}
        self._commits = 0
        self._records = 0
        self._used: dict[int, Used] = {}
        self._usage: dict[tuple[int, str], Used] = {}

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
            term=self.term,
            secret=self.secret,
            next_job_id=self._last_job_id + 1,
            jobs=[self._unfinished(job) for job in jobs],
            workers=[self._workers[worker] for worker in sorted(self._workers)],
            policies=[self._policies[name] for name in sorted(self._policies)],
            tokens=[self._tokens[name] for name in sorted(self._tokens)],
            users=[self._users[name] for name in sorted(self._users)],
            groups=[self._groups[name] for name in sorted(self._groups)],
            flock_rules=[self._flock_rules[name] for name in sorted(self._flock_rules)],
            flock_peers=[self._flock_peers[pool] for pool in sorted(self._flock_peers)],
            stored=[self._stored[key] for key in sorted(self._stored)],
            parents=self._ended_parents(jobs),
            paired=self._ended_pairs(jobs),
        )

    def _ended_pairs(self, active: Sequence[JobRecord]) -> dict[int, EndedTasks]:
        named = {job.spec.after_each for job in active} & self._jobs.keys()
        ended = (self._jobs[job_id] for job_id in named if self._jobs[job_id].state != "active")
        return {job.job_id: ended_tasks(job, self.ended_badly(job.job_id)) for job in ended}

    def _ended_parents(self, active: Sequence[JobRecord]) -> dict[int, str]:
        waiting = [job.spec.after for job in active if not job.freed]
        named = {parent for after in waiting for parent in ids_of(after)}
        found = (self._jobs[parent] for parent in named if parent in self._jobs)
        return {job.job_id: job.state for job in found if job.state != "active"}

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
            retried_after={
                task.index: task.retried_after
                for task in tasks.values()
                if task.index not in ended and task.retried_after
            },
            memory_steps={
                task.index: task.memory_step
                for task in tasks.values()
                if task.index not in ended and task.memory_step
            },
            least_seconds={
                task.index: task.least_seconds
                for task in tasks.values()
                if task.index not in ended and task.least_seconds
            },
            checkpoints={
                task.index: task.checkpoint
                for task in tasks.values()
                if task.index not in ended and task.checkpoint is not None
            },
            happenings=len(self._happenings.get(job.job_id, ())),
            bad=as_ranges(sorted(t.index for t in final if t.state is not TaskState.DONE)),
        )

    async def commit(self, records: Sequence[StoreRecord]) -> None:
        if self.full:
            raise StoreFull(cause="the store in memory was told to be full")
        self._keep(records)

    def _keep(self, records: Sequence[StoreRecord]) -> None:
        """What a commit comes to."""
        for record in records:
            self._apply(record)
        self._add_up([record for record in records if isinstance(record, TaskRecord)])
        if records:
            self._commits += 1
            self._records += len(records)

    def _add_up(self, records: Sequence[TaskRecord]) -> None:
        day = day_of(self._now())
        of_owners: dict[str, Used] = {}
        for job_id, found in sorted(by_job(records).items()):
            job = self._jobs.get(job_id)
            if job is not None:
                used = summed(found, job.submitted_at)
                self._used[job_id] = self._used.get(job_id, Used()).plus(used)
                of_owners[job.owner] = of_owners.get(job.owner, Used()).plus(used)
        for owner, used in of_owners.items():
            self._usage[day, owner] = self._usage.get((day, owner), Used()).plus(used)

    def _apply(self, record: StoreRecord) -> None:
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
            case OwnerTold():
                job = self._jobs.get(record.job_id)
                if job is not None and job.ended_at == record.ended_at:
                    told = {"unmailed" if record.by_mail else "untold": False}
                    self._jobs[record.job_id] = replace(job, **told)
            case Happening():
                self._happenings.setdefault(record.job_id, []).append(record)
            case WorkerRecord():
                self._workers[record.worker] = record
            case WorkerGone():
                self._workers.pop(record.worker, None)
            case MembershipEvent():
                self._member_events.append(record)
                self._roll.takes(record.kind, record.worker)
            case EventsDropped():
                gone = {
                    event.number
                    for event in self._member_events[:-1][:MOST_DROPPED]
                    if event.at < record.before or event.number <= record.up_to
                }
                self._member_events = [e for e in self._member_events if e.number not in gone]
            case WorkerGroup():
                self._worker_groups[record.name] = record
            case WorkerGroupGone():
                self._worker_groups.pop(record.name, None)
            case HandlerAwaits():
                self._lines.setdefault(record.handler, {})[record.number] = record
            case HandlerSettled():
                line = self._lines.get(record.handler, {})
                for number in [number for number in line if number <= record.up_to]:
                    del line[number]
            case TriggerFired():
                self._fired.append(record)
                _, times = self._courses.get(record.trigger, (0.0, 0))
                self._courses[record.trigger] = (record.at, times + 1)
            case FiredDropped():
                old = {
                    each.number
                    for each in self._fired[:-1][:MOST_FIRED_DROPPED]
                    if each.at < record.before or each.number <= record.up_to
                }
                self._fired = [each for each in self._fired if each.number not in old]
            case MomentRecorded():
                self._moments[record.number] = record
            case MomentsDropped():
                self._moments = {n: m for n, m in self._moments.items() if n > record.up_to}
            case PolicyRecord():
                self._policies[record.name] = record
            case PolicyGone():
                self._policies.pop(record.name, None)
            case TokenRecord():
                self._tokens[record.name] = record
            case TokenGone():
                self._tokens.pop(record.name, None)
            case UserRecord():
                self._users[record.name] = record
            case UserGone():
                self._users.pop(record.name, None)
            case StoredRecord():
                self._stored.pop((record.owner, record.hour), None)
                if record.size_bytes:
                    self._stored[record.owner, record.hour] = record
            case GroupRecord():
                self._groups[record.name] = record
            case GroupGone():
                self._groups.pop(record.name, None)
            case FlockRule():
                self._flock_rules[record.name] = record
            case FlockRuleGone():
                self._flock_rules.pop(record.name, None)
            case FlockPeer():
                self._flock_peers[record.pool] = record
            case FlockPeerGone():
                self._flock_peers.pop(record.pool, None)
            case JobForgotten():
                self._jobs.pop(record.job_id, None)
                self._used.pop(record.job_id, None)
                self._tasks.pop(record.job_id, None)
                self._happenings.pop(record.job_id, None)

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

    def untold(self, limit: int) -> list[JobRecord]:
        found = [job for _, job in sorted(self._jobs.items()) if job.untold]
        return [replace(job, spec=job.spec.head()) for job in found[:limit]]

    def unmailed(self, owner: str, limit: int) -> list[JobRecord]:
        jobs = [job for _, job in sorted(self._jobs.items()) if job.unmailed]
        found = [job for job in jobs if job.owner == owner]
        return [replace(job, spec=job.spec.head()) for job in found[:limit]]

    def unmailed_owners(self) -> list[str]:
        return sorted({job.owner for job in self._jobs.values() if job.unmailed})

    def ended_before(self, before: float, *, keep: int = 0, limit: int) -> list[int]:
        jobs = [job for job in self._jobs.values() if job.ended_at is not None]
        ended = sorted((j.ended_at or 0.0, j.job_id, j.untold or j.unmailed) for j in jobs)
        due = [job_id for at, job_id, kept in ended if at < before and not kept]
        return due[: max(0, min(limit, len(ended) - keep))]

    def has_forgotten(self) -> bool:
        return False

    def job_ids(
        self,
        *,
        ids: Sequence[int] | None = None,
        states: Sequence[str] = (),
        owner: str | None = None,
        name: str = "",
        ended_since: float | None = None,
        ended_of: str | None = None,
    ) -> list[int]:
        found = self._fitting(ids, states, owner, name, ended_since, ended_of)
        return [job.job_id for job in found]

    def _fitting(
        self,
        ids: Sequence[int] | None,
        states: Sequence[str],
        owner: str | None,
        name: str,
        ended_since: float | None,
        ended_of: str | None,
    ) -> list[JobRecord]:
        wanted = None if ids is None else set(ids)
        return [
            job
            for _, job in sorted(self._jobs.items())
            if (wanted is None or job.job_id in wanted)
            and (not states or job.state in states)
            and (owner is None or job.owner == owner)
            and (not name or fnmatchcase(job.spec.name, name))
            and (ended_since is None or (job.ended_at is not None and job.ended_at >= ended_since))
            and (ended_of is None or job.state == "active" or job.owner == ended_of)
        ]

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

    def used(self, job_ids: Sequence[int]) -> dict[int, Used]:
        return {
            job_id: self._used.get(job_id, Used()) for job_id in job_ids if job_id in self._jobs
        }

    def spread(self, job_id: int) -> Spread:
        if job_id not in self._jobs:
            return Spread()
        rows = self._tasks.get(job_id, {})
        indexes = sampled_indexes(job_id, max(rows, default=-1) + 1)
        submitted_at = self._jobs[job_id].submitted_at
        measures: list[Measures] = []
        for index in sorted(rows if indexes is None else set(indexes) & set(rows)):
            result = rows[index].result
            if result is not None and rows[index].state in FINAL_STATES:
                wait = max(0.0, result.started_at - submitted_at)
                measures.append((wait, result.wall_seconds, result.cpu_seconds, result.peak_bytes))
        return spread(measures, whole=indexes is None)

    def used_by_owner(self, since_day: int, owner: str | None = None) -> dict[str, Used]:
        found: dict[str, Used] = {}
        for (day, whose), used in sorted(self._usage.items()):
            if day >= since_day and owner in (None, whose):
                found[whose] = found.get(whose, Used()).plus(used)
        return dict(sorted(found.items()))

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

    def member_events(
        self, *, after: int = 0, since: float = 0.0, limit: int
    ) -> list[MembershipEvent]:
        found = [e for e in self._member_events if e.number > after and e.at >= since]
        return found[: max(limit, 0)]

    def last_member_event(self) -> int:
        return self._member_events[-1].number if self._member_events else 0

    def members(self) -> list[str]:
        return self._roll.present

    def worker_groups(self) -> list[WorkerGroup]:
        return [self._worker_groups[name] for name in sorted(self._worker_groups)]

    def awaited(self) -> dict[str, tuple[int, int]]:
        return {
            handler: (min(line), max(line)) for handler, line in sorted(self._lines.items()) if line
        }

    def awaits(self, handler: str, *, after: int = 0, limit: int) -> list[HandlerAwaits]:
        line = self._lines.get(handler, {})
        return [line[number] for number in sorted(line) if number > after][: max(limit, 0)]

    def fired(
        self, *, trigger: str = "", before: int | None = None, limit: int
    ) -> list[TriggerFired]:
        found = [
            each
            for each in self._fired
            if trigger in ("", each.trigger) and (before is None or each.number < before)
        ]
        return found[-limit:] if limit > 0 else []

    def first_fired(self) -> TriggerFired | None:
        return self._fired[0] if self._fired else None

    def trigger_courses(self) -> dict[str, tuple[float, int]]:
        return dict(sorted(self._courses.items()))

    def moments_kept(self) -> list[tuple[int, float]]:
        return [(each.number, each.at) for _, each in sorted(self._moments.items())]

    def moments(self, *, after: int, limit: int) -> list[MomentRecorded]:
        found = [each for number, each in sorted(self._moments.items()) if number > after]
        return found[: max(limit, 0)]

    def statistics(self) -> Statistics:
        return Statistics(
            commits=self._commits, commit_seconds=0.0, records=self._records, bytes_on_disk=0
        )

    def close(self) -> None:
        pass
