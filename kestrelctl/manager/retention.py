"""Forgets jobs that ended long ago, and those beyond the number that is kept; and old events.

The store says when jobs ended, and so when that is due: a manager that is started anew every hour
forgets as many as one that never ends. It is done in small pieces, so that a store that holds a
hundred thousand jobs too many does not keep the manager from its work.
"""

from __future__ import annotations

import asyncio
import logging

from kestrelctl.core import events as ev
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError
from kestrelctl.manager.options import EVENTS_KEPT_SECONDS, ManagerOptions
from kestrelctl.manager.service import Service
from kestrelctl.store.port import Reads

log = logging.getLogger(__name__)

#: The time between two looks when nothing is due, and when something may be.
LOOK_SECONDS = 60.0
SOON_SECONDS = 0.2
#: The most jobs that are forgotten at once.
MOST_AT_ONCE = 100
#: A job is kept for so long in any case: somebody may wait for it.
LEAST_SECONDS = 60.0


class Retention:
    """Looks from time to time for ended jobs that are no longer to be kept.

    Args:
        keep_seconds: how long ended jobs are kept; None for ever.
        keep_jobs: how many ended jobs are kept, those that ended last; None for all.
        events_kept_seconds: how long events of members are kept.
    """

    def __init__(
        self,
        service: Service,
        keep_seconds: float | None,
        keep_jobs: int | None,
        events_kept_seconds: float = EVENTS_KEPT_SECONDS,
    ) -> None:
        self._service = service
        self._keep_seconds = keep_seconds
        self._keep_jobs = keep_jobs
        self._events_kept_seconds = events_kept_seconds

    async def run(self) -> None:
        """Looks from time to time, for ever."""
        while True:
            more = False
            try:
                more = await self.look()
            except KestrelError as error:  # such as a database that is away for a while
                log.warning("nothing is forgotten now: %s (%s)", error, error.cause)
            await asyncio.sleep(SOON_SECONDS if more else LOOK_SECONDS)

    async def look(self) -> bool:
        """Forgets what is due, as much as is done at once.

        Returns:
            Whether there may be more to do.
        """
        service = self._service
        if service.store_error:
            return False  # deleting takes room, too
        now = service.now()
        events = await service.member_log.tidy(now, self._events_kept_seconds)
        sweep = await service.store.ask(lambda read: read.has_forgotten())
        ids = await self._due(now)
        totals = service.pool.totals
        before = totals.jobs_expired
        if ids or sweep:
            service.handle(ev.Expire(at=now, cause="retention", job_ids=ids, sweep=sweep))
        if totals.jobs_expired > before:
            forgot = plural(totals.jobs_expired - before, "ended job")
            log.info("forgot %s, kept for long enough, of %s", forgot, _named(ids))
        return bool(ids) or sweep or events

    async def _due(self, now: float) -> list[int]:
        """The jobs that are due. Which of them run again is looked at after the store was asked."""
        pool = self._service.pool
        most = MOST_AT_ONCE + pool.waited_for  # those are kept, and must not hide others
        found = await self._service.store.ask(lambda read: self._kept_enough(read, now, most))
        due = (job_id for job_id in found if pool.job(job_id) is None)
        return [job_id for job_id in due if not pool.is_waited_for(job_id)][:MOST_AT_ONCE]

    def _kept_enough(self, read: Reads, now: float, most: int) -> list[int]:
        """The jobs that ended long enough ago, or are too many, the first to end first."""
        found: list[int] = []
        if self._keep_seconds is not None:
            before = now - max(self._keep_seconds, LEAST_SECONDS)
            found = read.ended_before(before, limit=most)
        if self._keep_jobs is not None and len(found) < most:
            too_many = read.ended_before(now - LEAST_SECONDS, keep=self._keep_jobs, limit=most)
            found = max(found, too_many, key=len)  # both begin with the job that ended first
        return found


def retention(service: Service, options: ManagerOptions) -> Retention:
    """Makes the retention that the options of a manager ask for."""
    return Retention(service, options.keep_seconds, options.keep_jobs, options.events_kept_seconds)


def _named(ids: list[int]) -> str:
    some = ", ".join(map(str, ids[:5]))
    return f"{some}, …" if len(ids) > 5 else some
