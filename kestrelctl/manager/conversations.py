"""Carries the words of people to the pool, and what it answers back to them (`kestrelctl.chat`)."""

from __future__ import annotations

import logging

from kestrelctl.chat import words
from kestrelctl.chat.sentences import problem
from kestrelctl.chat.step import Step
from kestrelctl.core.pacing.budget import Budget
from kestrelctl.errors import KestrelError, NotAllowed
from kestrelctl.manager.access import Access, bare
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.request_dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.metrics import stanzas

log = logging.getLogger(__name__)

#: Of messages that ask nothing of the pool, an account has so many answered at once, and lastingly
#: so many a second. Programs that answer whatever they are sent ("I am away") would go on for ever
#: with the pool; at the first answer that does not come, they have nothing more to answer.
IDLE_MESSAGES = 20.0
IDLE_MESSAGES_PER_SECOND = 0.1
#: Accounts that are remembered before those with nothing to remember are forgotten.
_MANY_ACCOUNTS = 1000
_SILENT = (
    "\nThat is a lot of help and unknown words: "
    "for a while I answer one such message every ten seconds."
)


class Conversations:
    """Words are served as requests are: in turns, by the same dispatcher, for the same callers."""

    def __init__(self, service: Service, dispatcher: RequestDispatcher, access: Access) -> None:
        self._service = service
        self._dispatcher = dispatcher
        self._access = access
        self._idle: dict[str, Budget] = {}

    def take(
        self, sender: str, to: str, body: str, too_many: KestrelError, job_id: int | None = None
    ) -> None:
        """Answers a message in its account's turn, or refuses it unread.

        Args:
            to: the address that was written to, which answers.
            too_many: what to say if too much of the account waits.
            job_id: whose address that is; None for that of all jobs.
        """
        done = self._dispatcher.turns.take(
            sender, bare(sender), len(body), lambda: self._answer(sender, to, body, job_id)
        )
        if not done:
            self._service.stanzas.received(stanzas.BUSY, len(body))
            log.warning("refused a message of %s: too many of its account wait", sender)
            self._say(sender, to, problem(too_many))

    def _answer(self, sender: str, to: str, body: str, job_id: int | None) -> None:
        if not self._access.may_submit(sender):
            self._service.stanzas.received(stanzas.FORBIDDEN, len(body))
            log.warning("refused a message of %s: no user of this pool", sender)
            refusal = problem(NotAllowed("this account is no user of the pool"))
            self._say_idly(sender, to, refusal)
            return
        self._service.stanzas.received(stanzas.CHAT, len(body))
        read = self._read(body, bare(sender), job_id)
        if isinstance(read, str):
            self._say_idly(sender, to, read)
        else:
            self._go_on(sender, to, read)

    def _read(self, body: str, user: str, job_id: int | None) -> str | Step:
        """What a message comes to. An exception would go on to the stream, and end the session."""
        try:
            if job_id is None:
                return words.read(body, user)
            return words.read_to_job(job_id, body, user)
        except Exception:
            log.exception("a message of %s could not be read", user)
            return problem(KestrelError("the manager failed at this message"))

    def _go_on(self, sender: str, to: str, found: str | Step) -> None:
        if isinstance(found, str):
            self._say(sender, to, found)
            return
        caller = Caller(
            sender,
            self._access.is_admin(sender),
            lambda reply: self._go_on(sender, to, found.answer(reply)),
            self._access.share_jobs,
        )
        self._dispatcher.serve(caller, found.request)

    def _say_idly(self, sender: str, to: str, text: str) -> None:
        """Answers a message that asks nothing of the pool, unless there were too many of late."""
        now = self._service.now()
        if len(self._idle) >= _MANY_ACCOUNTS:
            left = self._idle.items()
            self._idle = {name: spent for name, spent in left if not spent.is_untouched(now)}
        spent = self._idle.setdefault(bare(sender), Budget(IDLE_MESSAGES_PER_SECOND, IDLE_MESSAGES))
        if not spent.has_room(now):
            log.warning("left a message of %s unanswered: too many ask nothing", bare(sender))
            return
        spent.spend(1.0, now)
        self._say(sender, to, text if spent.has_room(now) else text + _SILENT)

    def _say(self, sender: str, to: str, text: str) -> None:
        if self._dispatcher.outbox.put(sender, text, typed=True, sender=to):
            self._service.stanzas.sent(stanzas.CHAT, len(text))
        else:
            self._service.stanzas.sent(stanzas.DROPPED, len(text))
            log.warning("dropped an answer to %s: it does not take those that wait", sender)
