"""A pool at a glance: what an overview has, which is asked for every second."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.pool_moment import PoolMoment, PoolMomentToCome
from kestrelctl.protocol.reply import Reply


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A job in an overview; an array, because it travels every second."""

    job_id: int
    name: str  #: or the beginning of its command; empty if it is not for this user
    owner: str
    state: str  #: active, held, cancelling, done, failed or cancelled
    tasks: int
    submitted_at: PoolMoment
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    ended_at: PoolMoment | None = None
    guest_of: str = ""  #: the domain of the pool whose guest it is; empty for none


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A worker in an overview.

    Attributes:
        failures: fast ones in a row.
        since: when it went away, if it is offline.
        until: the end of its quarantine.
    """

    worker: str
    state: str
    running: int = 0
    queued: int = 0
    done: int = 0
    failed: int = 0
    failures: int = 0
    since: PoolMoment | None = None
    until: PoolMomentToCome | None = None


class Overview(Reply, frozen=True, kw_only=True, tag="overview"):
    """A pool at a glance.

    Attributes:
        pool: its domain.
        at: when, by the manager's clock.
        workers: how many are in which state.
        capacity, free: of the workers that are online, in natural units: processors, bytes.
        waiting: tasks that no worker has, by reason.
        running: tasks that run.
        queued: tasks that wait at a worker behind others.
        totals: since the manager started: they begin anew with each `epoch`.
        jobs: those with running tasks first, then by priority and age.
        ended: the jobs that ended last, newest first.
        notable: workers that are not well, then the busiest.
    """

    pool: str
    at: PoolMoment
    version: str
    epoch: int
    up_seconds: float
    workers: dict[str, int]
    capacity: dict[str, float]
    free: dict[str, float]
    waiting: dict[str, int]
    running: int
    queued: int
    totals: dict[str, int]
    jobs_active: int
    jobs: list[JobLine]
    ended: list[JobLine]
    notable: list[WorkerLine]
    store_error: str = ""
    store_error_since: PoolMoment | None = None
