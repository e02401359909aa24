"""Overviews of the pool: one is made for all users who ask within a second."""

from __future__ import annotations

import heapq
import shlex
from collections.abc import Sequence
from itertools import islice

import msgspec

from kestrelctl.checkout import own_version
from kestrelctl.core.census import WorkerNumbers
from kestrelctl.core.effects import JobEnded
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.worker.assets import natural
from kestrelctl.core.pool import Pool
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.service import Service
from kestrelctl.manager.views import shown
from kestrelctl.protocol.answers import Overview, WorkerLine
from kestrelctl.protocol.job_answers import JobLine
from kestrelctl.protocol.job_requests import ENDED_STATES

#: The time for which an overview is used; less than the second after which most clients ask again.
FRESH_SECONDS = 0.9
#: The time for which a list of ended jobs is used while no further one of them has ended.
ENDED_FRESH_SECONDS = 10.0
MOST_JOBS = 500
MOST_ENDED = 20
MOST_WORKERS = 20
#: Fast failures in a row that make a worker worth a look.
FAILING = 3
_LONGEST_NAME = 40
#: Workers in these states are shown first, in this order; `failing` has no state of its own.
_ODD = ("quarantined", "failing", "offline", "draining", "unheard")


class Overviews:
    """Makes overviews of a pool, each for all who ask within a second; jobs that have ended are
    looked up for each user.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._latest: Overview | None = None
        #: By user, None for all who see everybody's jobs: when they were read, and the jobs.
        self._ended: dict[str | None, tuple[float, list[JobLine]]] = {}
        #: How many jobs have ended.
        self._ends = 0
        service.listen(JobEnded, self._on_job_ended)

    def latest(self, now: float) -> Overview:
        """An overview that is at most a second old, without the jobs that have ended; at most 500
        jobs are in it.
        """
        known = self._latest
        if known is None or not 0 <= now - known.at < FRESH_SECONDS:
            known = self._latest = self._make(now)
        return known

    def _make(self, now: float) -> Overview:
        service, pool = self._service, self._service.pool
        found = pool.census(now)
        totals = pool.totals
        unstored = service.unstored()
        return Overview(
            id="",
            pool=service.domain,
            at=now,
            version=own_version(),
            epoch=pool.epoch,
            up_seconds=now - service.started_at,
            workers={word: n for word, n in found.workers_by_state.items() if n},
            capacity=natural(found.capacity),
            free=natural(found.free),
            waiting={reason: n for reason, n in found.waiting.items() if n},
            running=found.running,
            queued=found.queued,
            totals={
                "tasks_done": totals.tasks_done,
                "tasks_failed": totals.tasks_failed,
                "tasks_lost": totals.tasks_lost,
                "tasks_cancelled": totals.tasks_cancelled,
                "tasks_sent": totals.tasks_sent,
                "attempts_lost": totals.attempts_lost,
            },
            jobs_active=len(pool.jobs),
            jobs=[_active(job, unstored.get(job.id)) for job in _foremost(pool)],
            ended=[],
            notable=_notable(pool, found.workers),
            store_error=service.store_error,
            store_error_since=service.store_error_since,
        )

    async def ended_lately(self, caller: Caller, now: float) -> list[JobLine]:
        """The jobs that ended last among those that the caller sees whole, the newest first."""
        owner = None if caller.sees_all else caller.user
        self._ended = {
            whose: (read_at, lines)
            for whose, (read_at, lines) in self._ended.items()
            if 0 <= now - read_at < ENDED_FRESH_SECONDS
        }
        if owner not in self._ended:
            ends = self._ends
            records = await self._service.store.ask(
                lambda read: read.jobs(owner=owner, states=ENDED_STATES, limit=MOST_ENDED)
            )
            lines = [_over(record) for record in reversed(records)]
            lines.sort(key=lambda line: -(line.ended_at or 0.0))
            if ends != self._ends:  # a job that ended meanwhile may not be among them
                return lines
            self._ended[owner] = (now, lines)
        return self._ended[owner][1]

    def _on_job_ended(self, ended: JobEnded) -> None:
        self._ends += 1
        self._ended.pop(None, None)
        self._ended.pop(ended.record.owner, None)


def _foremost(pool: Pool) -> list[Job]:
    return heapq.nsmallest(MOST_JOBS, pool.jobs, key=lambda job: (not job.running, pool.order(job)))


def _active(job: Job, unstored: Counts | None) -> JobLine:
    counts, running = shown(job, unstored)
    return JobLine(
        job_id=job.id,
        name=_name(job.spec.name, job.spec.program.argv),
        owner=job.owner,
        state="cancelling" if job.cancelling else "active" if job.hold is None else "held",
        tasks=job.spec.count,
        submitted_at=job.submitted_at,
        waiting=job.remaining - job.running,
        running=running,
        done=counts.done,
        failed=counts.failed,
        lost=counts.lost,
        cancelled=counts.cancelled,
        guest_of=job.spec.guest_of,
    )


def _over(record: JobRecord) -> JobLine:
    spec, counts = record.spec, record.counts
    return JobLine(
        job_id=record.job_id,
        name=_name(spec.name, spec.program.argv),
        owner=record.owner,
        state=record.state,
        tasks=spec.count,
        submitted_at=record.submitted_at,
        done=counts.done,
        failed=counts.failed,
        lost=counts.lost,
        cancelled=counts.cancelled,
        ended_at=record.ended_at,
        guest_of=spec.guest_of,
    )


def as_seen(lines: Sequence[JobLine], caller: Caller) -> list[JobLine]:
    """Jobs without the names of those that are not the caller's to know."""
    return [
        line if caller.sees(line.owner) else msgspec.structs.replace(line, name="")
        for line in lines
    ]


def _name(name: str, argv: Sequence[str]) -> str:
    words = (word[:_LONGEST_NAME] for word in islice(argv, _LONGEST_NAME))
    return (name or shlex.join(words))[:_LONGEST_NAME]


def _notable(pool: Pool, workers: list[WorkerNumbers]) -> list[WorkerLine]:
    """Workers that are not well, the worst first; then the busiest."""

    def rank(found: WorkerNumbers) -> tuple[int, int]:
        fails = found.streak >= FAILING and found.state in ("busy", "idle")
        word = "failing" if fails else found.state
        return (_ODD.index(word) if word in _ODD else len(_ODD), -found.running)

    foremost = heapq.nsmallest(MOST_WORKERS, workers, key=rank)
    return [_line(pool, found) for found in foremost if rank(found) < (len(_ODD), 0)]


def _line(pool: Pool, found: WorkerNumbers) -> WorkerLine:
    worker = pool.workers[found.jid]
    return WorkerLine(
        worker=found.jid,
        state=found.state,
        running=found.running,
        queued=worker.queued,
        done=worker.tasks_done,
        failed=worker.tasks_failed,
        failures=found.streak,
        since=worker.offline_since if found.state == "offline" else None,
        until=worker.quarantined_until if found.state == "quarantined" else None,
    )
