"""Presence of the pool and its jobs, for users who subscribe: RFC 6121, 3 and 4.

Nothing of it is stored. The user's server keeps what he is subscribed to, and probes for him when
he comes online, and for all who are there when the manager connects (`mod_kestrel_guard`).
"""

from __future__ import annotations

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.pacing.presence import (
    LOOK_SECONDS,
    PresenceTable,
    Shown,
    Telling,
    job_shown,
    pool_shown,
)
from kestrelctl.manager.access import Access, bare
from kestrelctl.manager.caller import Caller, no_answer
from kestrelctl.manager.chat.addresses import Addresses
from kestrelctl.manager.service import Service
from kestrelctl.manager.views import shown
from kestrelctl.timer import Timer

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

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Takes in the presence of a user."""
        contact = bare(to)
        if kind == "unavailable":
            self._board.leave(contact, sender)
        elif kind == "unsubscribe":
            self._board.leave(contact, bare(sender))
            self._service.session.send_presence(bare(sender), "unsubscribed", contact)
        elif kind in ("subscribe", "probe"):
            if not self._may_see(sender, contact):
                self._service.session.send_presence(bare(sender), "unsubscribed", contact)
                return
            if kind == "subscribe":
                self._service.session.send_presence(bare(sender), "subscribed", contact)
            self._show(sender, contact)

    def forget_all(self) -> None:
        """Forgets all subscribers, because the server is away: it will tell who is still there."""
        self._board.clear()

    def status_of(self, job_id: int) -> str:
        """One line on how far a job is."""
        return self._job(job_id).status

    def may_see_job(self, jid: str, job_id: int) -> bool:
        """Whether a job is that account's, or anybody's to an admin."""
        owner = self._owner(job_id)
        return owner is not None and Caller.of(self._access, jid, no_answer).owns(owner)

    def _may_see(self, jid: str, contact: str) -> bool:
        if not self._access.may_submit(jid):
            return False
        if contact in (self._addresses.domain, self._addresses.pool, self._addresses.jobs):
            return True
        job_id = self._addresses.job_id(contact)
        return job_id is not None and self.may_see_job(jid, job_id)

    def _owner(self, job_id: int) -> str | None:
        job = self._service.pool.job(job_id)
        if job is not None:
            return job.owner
        return next((record.owner for record in self._records(job_id)), None)

    def _records(self, job_id: int) -> list[JobRecord]:
        return self._service.store.jobs(ids=[job_id], limit=1)

    def _show(self, jid: str, contact: str) -> None:
        found = self._how(contact, None)
        self._board.watch(contact, jid, found, self._service.now())
        self._tell(Telling(jid, contact, found))
        self._look_later()

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
        for telling in self._board.look(self._service.now(), self._how):
            self._tell(telling)
        self._look_later()

    def _how(self, contact: str, told: Shown | None) -> Shown:
        job_id = self._addresses.job_id(contact)
        return self._pool() if job_id is None else self._job(job_id, told)

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

    def _job(self, job_id: int, told: Shown | None = None) -> Shown:
        job = self._service.pool.job(job_id)
        if job is not None:
            return self._active(job)
        if told is not None and told.final:
            return told
        for record in self._records(job_id):
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
        return _GONE

    def _active(self, job: Job) -> Shown:
        counts, running = shown(job, self._service.unstored().get(job.id))
        return job_shown(
            "cancelling" if job.cancelling else "active",
            job.spec.count,
            waiting=job.remaining - job.running,
            running=running,
            done=counts.done,
            bad=counts.failed + counts.lost,
            cancelled=counts.cancelled,
        )
