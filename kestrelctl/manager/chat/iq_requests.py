"""Answers what users' clients ask the pool by IQ, in turns with all else that they ask."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Protocol

from kestrelctl.errors import Busy, KestrelError, NotAllowed, NotFound
from kestrelctl.manager.access import Access
from kestrelctl.manager.caller import Caller, no_answer
from kestrelctl.manager.chat.commands import next_step
from kestrelctl.manager.chat.disco import Disco
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.service import Service
from kestrelctl.metrics import stanzas
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.forms import (
    COMMANDS,
    DISCO_INFO,
    DISCO_ITEMS,
    PING,
    VCARD,
    Iq,
    IqError,
    as_text,
)

log = logging.getLogger(__name__)

_TOO_LARGE = IqError("modify", "not-acceptable", "This question is too large.")
_BUSY = IqError("wait", "resource-constraint", "Too many requests of this account wait.")
_UNKNOWN = IqError("cancel", "item-not-found")
_NOT_SERVED = IqError("cancel", "service-unavailable")
#: The names of errors in an IQ (RFC 6120, 8.3.3), by their code; others are a fault of what is
#: asked.
_CONDITIONS = {
    NotAllowed.code: ("auth", "forbidden"),
    NotFound.code: ("cancel", "item-not-found"),
    Busy.code: ("wait", "resource-constraint"),
    KestrelError.code: ("wait", "internal-server-error"),
}


class Answering(Protocol):
    """The session to which answers go: an `xmpp.xmpp_session.XmppSession`."""

    def answer(self, iq: Iq, payload: str | IqError) -> None:
        """Answers an IQ."""


class IqRequests:
    """Discovery, commands, pings and cards, for users of the pool."""

    def __init__(
        self,
        service: Service,
        dispatcher: RequestDispatcher,
        access: Access,
        disco: Disco,
        session: Answering,
    ) -> None:
        self._service = service
        self._dispatcher = dispatcher
        self._access = access
        self._disco = disco
        self._session = session

    def on_iq(self, iq: Iq) -> bool:
        """Takes what a user asks; False if nobody answers that, or not to him."""
        wanted = {DISCO_INFO: "get", DISCO_ITEMS: "get", PING: "get", VCARD: "get", COMMANDS: "set"}
        if not self._access.may_submit(iq.sender) or wanted.get(iq.namespace) != iq.kind:
            return False
        size = iq.characters()
        if size is None:
            self._session.answer(iq, _TOO_LARGE)
            return True
        caller = Caller.of(self._access, iq.sender, no_answer)
        turns = self._dispatcher.turns
        if not turns.take(
            iq.sender,
            caller.user,
            size,
            lambda: turns.spawn(caller.user, lambda: self._serve(caller, iq)),
        ):
            self._service.stanzas.received(stanzas.BUSY, size)
            self._session.answer(iq, _BUSY)
        return True

    async def _serve(self, caller: Caller, iq: Iq) -> None:
        try:
            if not await self._disco.knows(caller, iq.to):
                self._session.answer(iq, _UNKNOWN)
            elif iq.namespace == COMMANDS:
                self._command(caller, iq)
            elif iq.namespace == DISCO_INFO:
                self._session.answer(iq, as_text(await self._disco.info(iq)))
            elif iq.namespace == DISCO_ITEMS:
                self._session.answer(iq, as_text(self._disco.items(caller, iq)))
            elif iq.namespace == VCARD:
                self._session.answer(iq, as_text(self._disco.card(iq)))
            else:
                self._session.answer(iq, "")
        except KestrelError as error:
            self._session.answer(
                iq, _as_iq_error(error.code, error.message, error.cause, error.hint)
            )

    def _command(self, caller: Caller, iq: Iq) -> None:
        step = next_step(iq, caller.user)
        if not isinstance(step, tuple):
            self._session.answer(iq, as_text(step))
            return
        request, shown = step

        def reply(answer: an.Reply) -> None:
            if isinstance(answer, an.Failed):
                found = _as_iq_error(answer.code, answer.message, answer.cause, answer.hint)
                self._session.answer(iq, found)
            else:
                self._session.answer(iq, as_text(shown(answer)))

        self._service.stanzas.received(type(request), iq.characters() or 0)
        self._dispatcher.serve(replace(caller, reply=reply), request)


def _as_iq_error(code: str, message: str, cause: str | None, hint: str | None) -> IqError:
    kind, condition = _CONDITIONS.get(code, ("modify", "bad-request"))
    text = message + (f" ({cause})" if cause else "") + (f"; {hint}" if hint else "")
    return IqError(kind, condition, text)
