"""Presence of the pool and its jobs, for users who subscribe: RFC 6121, 3 and 4.

Nothing of it is stored. The user's server keeps what he is subscribed to, and probes for him when
he comes online, and for all who are there when the manager connects (`mod_kestrel_guard`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kestrelctl.core.effects import JobEnded
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.pacing.presence import (
    LOOK_SECONDS,
    MOST_TOLD,
    PresenceTable,
    Shown,
    Telling,
    job_shown,
    pool_shown,
)
from kestrelctl.errors import KestrelError
from kestrelctl.manager.access import Access, bare
from kestrelctl.manager.caller import Caller, no_answer
from kestrelctl.manager.chat.addresses import Addresses
from kestrelctl.manager.service import Service
from kestrelctl.manager.views import shown
from kestrelctl.timer import Timer

log = logging.getLogger(__name__)

#: The presence of a job that is not there.
_GONE = Shown(gone=True, final=True)
#: The time for which a look at the whole pool is used, when many ask at once.
_POOL_FRESH_SECONDS = 1.0


class PresenceService:
    """Answers subscriptions and probes, and tells subscribers of changes."""

    def __init__(self, service: Service, access: Access, addresses: Addresses) -> None:
        self._service = service
        self._access = access
        self._addresses = addresses
        self._board = PresenceTable()
        self._timer = Timer(self._look)
        self._pool_seen: Shown | None = None
        self._pool_seen_at = 0.0
        #: (contact, session) -> what tells apart those for whom the store is asked
        self._asking: dict[tuple[str, str], object] = {}
        #: Jobs that have ended since the last look.
        self._ended: dict[int, Shown] = {}
        service.listen(JobEnded, self._on_job_ended)

    async def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Takes in the presence of a user."""
        contact = bare(to)
        if kind == "unavailable":
            self._asking.pop((contact, sender), None)
            self._board.leave(contact, sender)
        elif kind == "unsubscribe":
            for key in [
                key for key in self._asking if (key[0], bare(key[1])) == (contact, bare(sender))
            ]:
                del self._asking[key]
            self._board.leave(contact, bare(sender))
            self._service.session.send_presence(bare(sender), "unsubscribed", contact)
        elif kind in ("subscribe", "probe"):
            key, asking = (contact, sender), object()
            self._asking[key] = asking
            try:
                record = await self._stored(contact)
            except KestrelError as error:  # he asks again when he comes online
                self._asking.pop(key, None)
                log.warning("%s is not told how %s is: %s", sender, contact, error)
                return
            if self._asking.get(key) is asking:  # he has not left meanwhile
                del self._asking[key]
                self._admit(sender, contact, kind, record)

    def _admit(self, sender: str, contact: str, kind: str, record: JobRecord | None) -> None:
        """Shows somebody a contact, if he may see it.

        Args:
            record: the job that the contact is, if it is not active.
        """
        if not self._may_see(sender, contact, record):
            self._service.session.send_presence(bare(sender), "unsubscribed", contact)
            return
        if kind == "subscribe":
            self._service.session.send_presence(bare(sender), "subscribed", contact)
        found = self._how(contact, None, self._service.unstored(), record)
        self._board.watch(contact, sender, found, self._service.now())
        self._tell(Telling(sender, contact, found))
        self._look_later()

    def forget_all(self) -> None:
        """Forgets all subscribers, because the server is away: it will tell who is still there."""
        self._board.clear()
        self._asking.clear()
        self._ended.clear()

    async def status_of(self, job_id: int) -> str:
        """One line on how far a job is."""
        record = await self._stored_job(job_id)
        return self._job(job_id, None, self._service.unstored(), record).status

    async def may_see_job(self, jid: str, job_id: int) -> bool:
        """Whether a job is that account's, or anybody's to an admin."""
        return self._may_see_job(jid, job_id, await self._stored_job(job_id))

    def _may_see_job(self, jid: str, job_id: int, record: JobRecord | None) -> bool:
        job = self._service.pool.job(job_id)
        owner = job.owner if job is not None else record.owner if record is not None else None
        return owner is not None and Caller.of(self._access, jid, no_answer).owns(owner)

    def _may_see(self, jid: str, contact: str, record: JobRecord | None) -> bool:
        if not self._access.may_submit(jid):
            return False
        if contact in (self._addresses.domain, self._addresses.pool, self._addresses.jobs):
            return True
        job_id = self._addresses.job_id(contact)
        return job_id is not None and self._may_see_job(jid, job_id, record)

    async def _stored(self, contact: str) -> JobRecord | None:
        """The job that a contact is, unless it is active or none."""
        job_id = self._addresses.job_id(contact)
        return None if job_id is None else await self._stored_job(job_id)

    async def _stored_job(self, job_id: int) -> JobRecord | None:
        if self._service.pool.job(job_id) is not None:
            return None
        found = await self._service.store.ask(lambda read: read.jobs(ids=[job_id], limit=1))
        return found[0] if found else None

    def _tell(self, telling: Telling) -> None:
        self._service.session.send_presence(
            telling.account,
            "unavailable" if telling.shown.gone else None,
            telling.contact,
            telling.shown.show,
            telling.shown.status,
        )

    def _look_later(self) -> None:
        if self._board:
            self._timer.set_once(LOOK_SECONDS)

    def _look(self) -> None:
        unstored = self._service.unstored()  # once for all that are watched
        tellings = self._board.look(
            self._service.now(), lambda contact, told: self._how(contact, told, unstored)
        )
        for telling in tellings:
            self._tell(telling)
        if len(tellings) < MOST_TOLD:  # otherwise some are still to be told
            self._ended.clear()
        self._look_later()

    def _on_job_ended(self, ended: JobEnded) -> None:
        if self._board or self._asking:
            self._ended[ended.record.job_id] = _ended_shown(ended.record)

    def _how(
        self,
        contact: str,
        told: Shown | None,
        unstored: Mapping[int, Counts],
        record: JobRecord | None = None,
    ) -> Shown:
        job_id = self._addresses.job_id(contact)
        return self._pool() if job_id is None else self._job(job_id, told, unstored, record)

    def _pool(self) -> Shown:
        moment = self._service.now()
        if self._pool_seen is None or moment - self._pool_seen_at >= _POOL_FRESH_SECONDS:
            self._pool_seen, self._pool_seen_at = self._look_at_pool(), moment
        return self._pool_seen

    def _look_at_pool(self) -> Shown:
        pool = self._service.pool
        online = [worker for worker in pool.workers.values() if worker.online]
        return pool_shown(
            len(online),
            sum(1 for worker in online if worker.held),
            sum(job.remaining - job.running for job in pool.jobs),
            self._service.store_error and "the manager cannot store anything now",
        )

    def _job(
        self,
        job_id: int,
        told: Shown | None,
        unstored: Mapping[int, Counts],
        record: JobRecord | None,
    ) -> Shown:
        job = self._service.pool.job(job_id)
        if job is not None:
            return _active_shown(job, unstored.get(job_id))
        if record is not None:
            return _ended_shown(record)
        return self._ended.get(job_id, told or _GONE)


def _active_shown(job: Job, unstored: Counts | None) -> Shown:
    counts, running = shown(job, unstored)
    return job_shown(
        "cancelling" if job.cancelling else "active",
        job.spec.count,
        waiting=job.remaining - job.running,
        running=running,
        done=counts.done,
        bad=counts.failed + counts.lost,
        cancelled=counts.cancelled,
    )


def _ended_shown(record: JobRecord) -> Shown:
    counts = record.counts
    return job_shown(
        record.state,
        record.spec.count,
        waiting=0,
        running=0,
        done=counts.done,
        bad=counts.failed + counts.lost,
        cancelled=counts.cancelled,
    )
