"""Carries the words of people to the pool, and what it answers back to them (`kestrelctl.chat`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from kestrelctl.chat import words
from kestrelctl.chat.sentences import CORRECTS, not_the_rest, problem, unread
from kestrelctl.chat.step import NotDone, Step
from kestrelctl.core.pacing.budget import Budget
from kestrelctl.errors import KestrelError, NotAllowed
from kestrelctl.manager.access import Access, bare
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.metrics import stanzas
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatKind, ChatMarks

log = logging.getLogger(__name__)

#: The most messages that ask nothing of the pool and are answered for an account: at once, and
#: lastingly in a second. Programs that answer whatever they are sent ("I am away") would go on for
#: ever with the pool; at the first answer that does not come, they have nothing more to answer.
IDLE_MESSAGES = 20.0
IDLE_MESSAGES_PER_SECOND = 0.1
#: Accounts that are remembered before those with nothing to remember are forgotten.
_MANY_ACCOUNTS = 1000
_SILENT = (
    "\nThat is a lot of help and unknown words: "
    "for a while I answer one such message every ten seconds."
)


@dataclass(frozen=True)
class _Message:
    """A message that is being answered.

    Attributes:
        to: the address that was written to, which answers.
        job_id: the job whose address that is; None for that of all jobs.
        too_many: what to say if too much of the account waits.
    """

    sender: str
    to: str
    body: str
    too_many: KestrelError
    job_id: int | None
    marks: ChatMarks


class Conversations:
    """Serves words as requests are served: in turns, by the same dispatcher, for the same callers.

    The commands of one message are done one after another, each when the one before it has been
    answered, and none after one that was refused: it may rest on what that one should have done.
    """

    def __init__(self, service: Service, dispatcher: RequestDispatcher, access: Access) -> None:
        self._service = service
        self._dispatcher = dispatcher
        self._access = access
        self._idle: dict[str, Budget] = {}
        #: By account, the id of its latest message, if that changed nothing: it can be corrected.
        self._harmless: dict[str, str] = {}

    def take(
        self,
        sender: str,
        to: str,
        body: str,
        too_many: KestrelError,
        job_id: int | None = None,
        marks: ChatMarks = JUST_TEXT,
    ) -> None:
        """Answers a message in its account's turn, or refuses it unread.

        Args:
            to: the address that was written to, which answers.
            too_many: what to say if too much of the account waits.
            job_id: the job whose address that is; None for that of all jobs.
            marks: what its program says of the message.
        """
        message = _Message(sender, to, body, too_many, job_id, marks)
        if not self._in_turn(message, lambda: self._answer(message)):
            self._service.stanzas.received(stanzas.BUSY, len(body))
            log.warning("refused a message of %s: too many of its account wait", sender)
            self._say(message, problem(too_many))

    def _in_turn(self, message: _Message, work: Callable[[], None]) -> bool:
        sender = message.sender
        return self._dispatcher.turns.take(sender, bare(sender), len(message.body), work)

    def _answer(self, message: _Message) -> None:
        sender, size = message.sender, len(message.body)
        if not self._access.may_submit(sender):
            self._service.stanzas.received(stanzas.FORBIDDEN, size)
            log.warning("refused a message of %s: no user of this pool", sender)
            refusal = problem(NotAllowed("this account is no user of the pool"))
            self._say_idly(message, refusal)
            return
        self._service.stanzas.received(stanzas.CHAT, size)
        if message.marks.kind is not ChatKind.WORDS:
            self._say_idly(message, unread(message.marks.kind))
            return
        corrected = message.marks.corrects
        if corrected and self._harmless.get(bare(sender)) != corrected:
            self._say_idly(message, problem(CORRECTS))
            return
        commands = self._read(message)
        self._remember(message, commands)
        self._go_on(message, commands)

    def _read(self, message: _Message) -> list[str | Step]:
        """Reads a message. An exception would go on to the stream, and end the session."""
        user = bare(message.sender)
        try:
            return words.read_message(message.body, user, message.job_id)
        except Exception:
            log.exception("a message of %s could not be read", user)
            return [problem(KestrelError("the manager failed at this message"))]

    def _remember(self, message: _Message, commands: list[str | Step]) -> None:
        """Notes whether a message can be corrected; a second correction names the first message."""
        if len(self._harmless) >= _MANY_ACCOUNTS:
            self._harmless.clear()
        user = bare(message.sender)
        id_ = message.marks.corrects or message.marks.id
        if id_ and not any(isinstance(each, Step) and each.changes for each in commands):
            self._harmless[user] = id_
        else:
            self._harmless.pop(user, None)

    def _go_on(self, message: _Message, commands: list[str | Step]) -> None:
        """Does the first of the commands; the others follow."""
        first, *others = commands
        if isinstance(first, str):
            self._say_idly(message, first)
            self._then(message, others)
        else:
            self._do(message, first, others)

    def _then(self, message: _Message, others: list[str | Step]) -> None:
        if others and not self._in_turn(message, lambda: self._go_on(message, others)):
            log.warning("dropped commands of %s: too many of its account wait", message.sender)
            self._say(message, f"{message.too_many}.\n{not_the_rest(len(others))}")

    def _do(self, message: _Message, found: str | Step, others: list[str | Step]) -> None:
        if isinstance(found, NotDone) and others:
            self._say(message, f"{found}\n{not_the_rest(len(others))}")
        elif isinstance(found, str):
            self._say(message, found)
            self._then(message, others)
        else:
            caller = Caller.of(
                self._access,
                message.sender,
                lambda reply: self._do(message, found.answer(reply), others),
            )
            self._dispatcher.serve(caller, found.request)

    def _say_idly(self, message: _Message, text: str) -> None:
        """Answers a message that asks nothing of the pool, unless there were too many lately."""
        now = self._service.now()
        user = bare(message.sender)
        if len(self._idle) >= _MANY_ACCOUNTS:
            left = self._idle.items()
            self._idle = {name: spent for name, spent in left if not spent.is_untouched(now)}
        spent = self._idle.setdefault(user, Budget(IDLE_MESSAGES_PER_SECOND, IDLE_MESSAGES))
        if not spent.has_room(now):
            log.warning("left a message of %s unanswered: too many ask nothing", user)
            return
        spent.spend(1.0, now)
        self._say(message, text if spent.has_room(now) else text + _SILENT)

    def _say(self, message: _Message, text: str) -> None:
        to = message.sender
        if self._dispatcher.outbox.put(to, text, typed=True, sender=message.to):
            self._service.stanzas.sent(stanzas.CHAT, len(text))
        else:
            self._service.stanzas.sent(stanzas.DROPPED, len(text))
            log.warning("dropped an answer to %s: it does not take those that wait", to)
