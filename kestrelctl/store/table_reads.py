"""Answers of a store with tables, whatever holds them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Unpack

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.handler_records import HandlerAwaits
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import Happening, JobRecord, TaskRecord
from kestrelctl.core.model.wording import plural
from kestrelctl.core.triggers.fired import TriggerFired
from kestrelctl.core.triggers.recorded_moment import MomentRecorded
from kestrelctl.store import event_rows, reading, rule_rows
from kestrelctl.store.connection import TableReader
from kestrelctl.store.edges import Edge, edges
from kestrelctl.store.port import WhichJobs
from kestrelctl.store.sums import Spread, Used

log = logging.getLogger(__name__)

#: The most jobs that cannot be read and are named at once.
MOST_NAMED = 20


class TableReads:
    """The reads of `store.port.Reads`, through a connection of their own: they see what is durable,
    and never wait for a commit.
    """

    _reader: TableReader

    def __init__(self) -> None:
        self._damaged: dict[int, str] = {}

    def _explained(self) -> AbstractContextManager[None]:
        """Turns errors of what holds the tables into ours."""
        raise NotImplementedError

    def _set_aside(self, job_id: int, why: str) -> None:
        """Notes a job that cannot be read; it stays in the tables as it is."""
        if job_id not in self._damaged:
            log.error("job %s cannot be read in the store, and is set aside: %s", job_id, why)
            self._damaged[job_id] = why

    @property
    def damaged(self) -> Mapping[int, str]:
        return self._damaged

    def notes(self) -> list[str]:
        damaged = sorted(self._damaged)
        if not damaged:
            return []
        some = ", ".join(map(str, damaged[:MOST_NAMED]))
        return [f"{plural(len(damaged), 'job')} cannot be read and set aside: {some}"]

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
        which = reading.Which(ids, states, owner, name, before, ended_since, ended_of)
        with self._explained():
            found = reading.jobs(self._reader, which, limit, self._set_aside)
        return [job for job in found if job.job_id not in self._damaged]

    def untold(self, limit: int) -> list[JobRecord]:
        with self._explained():
            return reading.untold(self._reader, limit, self._set_aside)

    def unmailed(self, owner: str, limit: int) -> list[JobRecord]:
        with self._explained():
            return reading.unmailed(self._reader, owner, limit, self._set_aside)

    def unmailed_owners(self) -> list[str]:
        with self._explained():
            return reading.unmailed_owners(self._reader)

    def ended_before(self, before: float, *, keep: int = 0, limit: int) -> list[int]:
        with self._explained():
            return reading.ended_before(self._reader, before, keep, limit)

    def has_forgotten(self) -> bool:
        with self._explained():
            return reading.has_forgotten(self._reader)

    def job_ids(self, **which: Unpack[WhichJobs]) -> list[int]:
        with self._explained():
            return reading.job_ids(self._reader, reading.Which(**which))

    def count_jobs(self, **which: Unpack[WhichJobs]) -> int:
        with self._explained():
            return reading.count_jobs(self._reader, reading.Which(**which))

    def job(self, job_id: int) -> JobRecord | None:
        with self._explained():
            return reading.job(self._reader, job_id, self._set_aside)

    def job_of_key(self, owner: str, key: str) -> JobRecord | None:
        with self._explained():
            return reading.job_of_key(self._reader, owner, key, self._set_aside)

    def tasks(
        self,
        job_id: int,
        *,
        states: Sequence[TaskState] = (),
        after: int = -1,
        limit: int = 1000,
        indexes: Sequence[int] = (),
    ) -> list[TaskRecord]:
        with self._explained():
            return reading.tasks(self._reader, job_id, states, after, limit, indexes)

    def edges(
        self, *, ids: Sequence[int] | None = None, above: int = 0, limit: int | None = None
    ) -> list[Edge]:
        with self._explained():
            return edges(self._reader, ids, above, limit)

    def ended_badly(self, job_id: int, indexes: Sequence[int] = ()) -> list[tuple[int, str]]:
        with self._explained():
            return reading.ended_badly(self._reader, job_id, indexes)

    def used(self, job_ids: Sequence[int]) -> dict[int, Used]:
        with self._explained():
            return reading.used(self._reader, job_ids)

    def spread(self, job_id: int) -> Spread:
        with self._explained():
            return reading.spread(self._reader, job_id)

    def used_by_owner(self, since_day: int, owner: str | None = None) -> dict[str, Used]:
        with self._explained():
            return reading.used_by_owner(self._reader, since_day, owner)

    def happenings(
        self, job_id: int, *, indexes: Sequence[int] = (), limit: int = 1000
    ) -> list[Happening]:
        with self._explained():
            return reading.happenings(self._reader, job_id, indexes, limit)

    def count_happenings(self, job_id: int) -> int:
        with self._explained():
            return reading.count_happenings(self._reader, job_id)

    def member_events(
        self, *, after: int = 0, since: float = 0.0, limit: int
    ) -> list[MembershipEvent]:
        with self._explained():
            return event_rows.stored_events(self._reader, after, since, limit)

    def last_member_event(self) -> int:
        with self._explained():
            return event_rows.last_event_number(self._reader)

    def members(self) -> list[str]:
        with self._explained():
            return event_rows.present_members(self._reader)

    def awaited(self) -> dict[str, tuple[int, int]]:
        with self._explained():
            return rule_rows.awaited(self._reader)

    def awaits(self, handler: str, *, after: int = 0, limit: int) -> list[HandlerAwaits]:
        with self._explained():
            return rule_rows.awaits(self._reader, handler, after, limit)

    def fired(
        self, *, trigger: str = "", before: int | None = None, limit: int
    ) -> list[TriggerFired]:
        with self._explained():
            return rule_rows.fired(self._reader, trigger, before, limit)

    def first_fired(self) -> TriggerFired | None:
        with self._explained():
            return rule_rows.first_fired(self._reader)

    def trigger_courses(self) -> dict[str, tuple[float, int]]:
        with self._explained():
            return rule_rows.trigger_courses(self._reader)

    def moments_kept(self) -> list[tuple[int, float]]:
        with self._explained():
            return rule_rows.moments_kept(self._reader)

    def moments(self, *, after: int, limit: int) -> list[MomentRecorded]:
        with self._explained():
            return rule_rows.moments(self._reader, after, limit)
