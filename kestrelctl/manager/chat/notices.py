"""Tells owners of the ends of their jobs, by a chat message that their server keeps for them.

The commit that ends a job stores that its owner is still to be told. That is taken out when the
server has the message: whatever fails between the two, the owner is told, though perhaps twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from kestrelctl.chat.sentences import notice
from kestrelctl.core import events as ev
from kestrelctl.core.effects import JobEnded, NoticesSettled
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobRecord
from kestrelctl.errors import KestrelError
from kestrelctl.manager.service import Service
from kestrelctl.metrics import stanzas
from kestrelctl.store.port import Reads

log = logging.getLogger(__name__)

#: The most messages that are sent before the server has dealt with them.
MOST_AT_ONCE = 50


class Notices:
    """Sends what is still to be told, a few messages at a time, in the order of the jobs."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sender = f"jobs@{service.domain}"
        self._looking: asyncio.Task[None] | None = None
        self._look_again = False
        self._sending = False
        self._settling = False
        service.listen(JobEnded, self._on_job_ended)
        service.listen(NoticesSettled, self._on_settled)

    def on_online(self) -> None:
        """Sends again over a new session: messages sent over an earlier one may be lost."""
        self._sending = False
        self._look()

    def _on_job_ended(self, ended: JobEnded) -> None:
        if ended.record.untold:
            self._look()

    def _on_settled(self, settled: NoticesSettled) -> None:
        if not settled.by_mail:
            self._settling = False
            self._look()

    def _look(self) -> None:
        if self._sending or self._settling or not self._service.session.online:
            return
        if self._looking is not None:
            self._look_again = True
            return
        self._looking = asyncio.get_running_loop().create_task(self._find_and_send())

    async def _find_and_send(self) -> None:
        found: list[tuple[JobRecord, str]] = []
        try:  # the next end of a job has it tried again
            untold = await self._service.store.ask(_untold)
            found = [(record, notice(record, bad_task)) for record, bad_task in untold]
        except KestrelError as error:
            log.warning("owners are not told of their jobs: %s", error)
        except Exception:
            log.exception("owners are not told of their jobs")
        self._looking = None
        again, self._look_again = self._look_again, False
        if found and self._service.session.online:
            self._send(found)
        elif again:
            self._look()

    def _send(self, found: list[tuple[JobRecord, str]]) -> None:
        self._sending = True
        session = self._service.session
        for record, text in found:
            self._service.stanzas.sent(stanzas.CHAT, len(text))
            session.send_body(text, record.owner, self._sender)
        ends = [(record.job_id, record.ended_at) for record, _ in found]
        session.when_taken(lambda: self._on_taken(ends))

    def _on_taken(self, ends: list[tuple[int, float | None]]) -> None:
        self._sending, self._settling = False, True
        self._service.handle(ev.OwnersTold(at=self._service.now(), cause="server", ends=ends))


def _untold(read: Reads) -> list[tuple[JobRecord, int | None]]:
    """The jobs whose owners are told next, each with a task to look at."""
    return [(record, _bad_task(read, record)) for record in read.untold(MOST_AT_ONCE)]


def _bad_task(read: Reads, record: JobRecord) -> int | None:
    bad = (TaskState.FAILED, TaskState.LOST)
    if not (record.counts.failed or record.counts.lost):
        return None
    with contextlib.suppress(KestrelError):  # unreadable: whoever asks for the tasks hears it
        for task in read.tasks(record.job_id, states=bad, limit=1):
            return record.spec.task_id(task.index)
    return None
