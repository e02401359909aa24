"""Tells owners of the ends of their jobs by mail, where they want it and a server takes it.

The commit that ends a job stores that its owner is still to be sent a mail. That is taken out
when the server for mail has it: whatever fails between the two, the mail is sent, perhaps twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Sequence
from email.message import EmailMessage

from kestrelctl.core import events as ev
from kestrelctl.core.effects import JobEnded, NoticesSettled
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError
from kestrelctl.manager.mail.letter import letter
from kestrelctl.manager.mail.server import NotNow, NotToHim, Post
from kestrelctl.manager.service import Service
from kestrelctl.store.port import Reads

log = logging.getLogger(__name__)

#: After the first end the mail waits so long for others that end together.
GATHER_SECONDS = 5.0
#: A user is sent no more than one mail in so long.
BETWEEN_SECONDS = 60.0
#: The most jobs in one mail, and how many of them have a failed task looked up.
MOST_JOBS = 1_000
MOST_LOOKED_UP = 50
#: The pauses if the server does not take a receiver, or is away: doubled each time.
FIRST_PAUSE_SECONDS = 15.0
LONGEST_PAUSE_SECONDS = 900.0
#: A mail that could not be sent for so long after the end of a job is not sent any more.
GIVE_UP_SECONDS = 86_400.0
_BAD = (TaskState.FAILED, TaskState.LOST)


class Mails:
    """Sends what is still to be sent, one mail after the other.

    Args:
        post: None if there is no server for mail: what was to be sent is dropped.
    """

    def __init__(self, service: Service, post: Post | None) -> None:
        self._service = service
        self._post = post
        self._counts = service.mails
        service.sends_mail = post is not None
        self._woken = asyncio.Event()
        self._settled = asyncio.Event()
        now = service.now()
        #: owner -> when he is sent his next mail.
        self._due = dict.fromkeys(service.store.unmailed_owners(), now + GATHER_SECONDS)
        #: owner -> when he was sent one.
        self._latest: dict[str, float] = {}
        #: owner -> how long his last pause was, if the server did not take his mail.
        self._pauses: dict[str, float] = {}
        #: The same of the server itself, and until when no mail is tried.
        self._away_until = 0.0
        self._away_pause = 0.0
        service.listen(JobEnded, self._on_job_ended)
        service.listen(NoticesSettled, self._on_settled)

    async def run(self) -> None:
        """Sends what is due, for ever."""
        while True:
            self._woken.clear()
            pause_seconds = await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_seconds):
                    await self._woken.wait()

    async def look(self) -> float | None:
        """Sends what is due now.

        Returns:
            The seconds until something may be due again; None if nothing is to be sent.
        """
        while self._due:
            now = self._service.now()
            owner = min(self._due, key=self._due.__getitem__)
            due_at = max(self._due[owner], self._away_until)
            if due_at > now:
                return due_at - now
            del self._due[owner]
            try:
                await self._serve(owner)
            except KestrelError as error:  # such as a database that is away for a while
                log.warning("the mail to %s waits: %s (%s)", owner, error, error.cause)
                self._due[owner] = now + FIRST_PAUSE_SECONDS
            except Exception:  # a slip here must not end the mail of all
                log.exception("the mail to %s failed", owner)
                self._due[owner] = now + LONGEST_PAUSE_SECONDS
        return None

    def _on_job_ended(self, ended: JobEnded) -> None:
        if not ended.record.unmailed:
            return
        owner = ended.record.owner
        if owner not in self._due:
            now = self._service.now()
            next_at = self._latest.get(owner, now - BETWEEN_SECONDS) + BETWEEN_SECONDS
            self._due[owner] = max(now + GATHER_SECONDS, next_at)
            self._woken.set()

    def _on_settled(self, settled: NoticesSettled) -> None:
        if settled.by_mail:
            self._settled.set()

    async def _serve(self, owner: str) -> None:
        """Sends one user one mail, with as many of his jobs as it takes."""
        records = await self._service.store.ask(lambda read: read.unmailed(owner, MOST_JOBS))
        if not records:
            return
        sharer = self._service.pool.sharers.find(owner)
        to = sharer.record.mail if sharer is not None else ""
        if self._post is None or not to:
            if self._post is None:
                log.warning("%s of %s not mailed: there is no --smtp", _jobs(records), owner)
            await self._settle(records)
            await self._go_on(owner, self._service.now())
            return
        try:
            await self._post.send(await self._letter(records, self._post.sender, to))
        except NotToHim as refusal:
            await self._not_taken(owner, records, refusal)
        except NotNow as error:
            await self._server_is_away(owner, str(error))
        else:
            self._counts.sent += 1
            self._pauses.pop(owner, None)
            self._away_pause = 0.0
            self._latest[owner] = self._service.now()
            await self._settle(records)
            await self._go_on(owner, self._latest[owner] + BETWEEN_SECONDS)

    async def _letter(self, records: Sequence[JobRecord], sender: str, to: str) -> EmailMessage:
        bad = [each for each in records if each.counts.failed or each.counts.lost]
        some = [record.job_id for record in bad[:MOST_LOOKED_UP]]
        tasks = await self._service.store.ask(lambda read: _first_bad(read, some))
        return letter(
            records,
            tasks,
            items=await self._items(tasks.values()),
            pool=self._service.name,
            sender=sender,
            to=to,
            now=self._service.clock.wall(),
        )

    async def _items(self, tasks: Iterable[TaskRecord]) -> dict[int, str]:
        """The items of tasks of several jobs, by job."""
        found: dict[int, str] = {}
        for task in tasks:
            with contextlib.suppress(KestrelError):  # unreadable: the mail does without
                window = await self._service.store.items(task.job_id, task.index)
                if window is not None:
                    found[task.job_id] = window.items[task.index - window.first]
        return found

    async def _not_taken(self, owner: str, records: Sequence[JobRecord], refusal: NotToHim) -> None:
        now = self._service.now()
        if refusal.for_good:
            self._counts.refused += 1
            self._pauses.pop(owner, None)
            log.warning("%s of %s not mailed: %s", _jobs(records), owner, refusal)
            await self._settle(records)
            await self._go_on(owner, now + BETWEEN_SECONDS)
            return
        self._counts.delayed += 1
        pause = self._pauses[owner] = _next_pause(self._pauses.get(owner, 0.0))
        log.info("the mail to %s is tried again in %d s: %s", owner, pause, refusal)
        self._due[owner] = now + pause
        await self._give_up_old()

    async def _server_is_away(self, owner: str, why: str) -> None:
        """Sends nothing for a while; then others than this user come first."""
        now = self._service.now()
        self._counts.delayed += 1
        self._away_pause = _next_pause(self._away_pause)
        self._away_until = now + self._away_pause
        log.warning("no mail can be sent, the next try is in %d s: %s", self._away_pause, why)
        self._due[owner] = now
        await self._give_up_old()

    async def _give_up_old(self) -> None:
        too_old = self._service.now() - GIVE_UP_SECONDS
        for owner in list(self._due):
            found = await self._service.store.ask(
                lambda read, owner=owner: read.unmailed(owner, MOST_JOBS)  # type: ignore[misc]
            )
            records = [each for each in found if (each.ended_at or 0.0) < too_old]
            if records:
                self._counts.given_up += 1
                log.warning("%s of %s not mailed: tried for a day", _jobs(records), owner)
                await self._settle(records)

    async def _settle(self, records: Sequence[JobRecord]) -> None:
        """Notes that the owner knows, and waits until that is durable."""
        self._settled.clear()
        ends = [(record.job_id, record.ended_at) for record in records]
        now = self._service.now()
        self._service.handle(ev.OwnersTold(at=now, cause="mail", ends=ends, by_mail=True))
        await self._settled.wait()

    async def _go_on(self, owner: str, at: float) -> None:
        """Plans the next mail to a user at a moment, if there is more to send to him."""
        self._due.pop(owner, None)  # what ends while the store is asked is planned by itself
        if await self._service.store.ask(lambda read: read.unmailed(owner, 1)):
            self._due[owner] = at


def _first_bad(read: Reads, job_ids: Sequence[int]) -> dict[int, TaskRecord]:
    """The first task of each job that did not go well, by job."""
    found: dict[int, TaskRecord] = {}
    for job_id in job_ids:
        with contextlib.suppress(KestrelError):  # unreadable: who asks for the tasks hears it
            for task in read.tasks(job_id, states=_BAD, limit=1):
                found[job_id] = task
    return found


def _next_pause(pause_seconds: float) -> float:
    return min(LONGEST_PAUSE_SECONDS, 2 * pause_seconds) or FIRST_PAUSE_SECONDS


def _jobs(records: Sequence[JobRecord]) -> str:
    some = ", ".join(str(record.job_id) for record in records[:5])
    more = ", …" if len(records) > 5 else ""
    return f"the end of {plural(len(records), 'job')} ({some}{more})"
