"""Takes what arrives from the server to the parts of the manager that deal with it."""

from __future__ import annotations

import logging

from kestrelctl.core import events as ev
from kestrelctl.core.model.validate import problem_with_ad
from kestrelctl.errors import KestrelError, NotAllowed, UsageError
from kestrelctl.manager.access import Access
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.request_dispatch import RequestDispatcher, failed
from kestrelctl.manager.service import Service
from kestrelctl.metrics import stanzas
from kestrelctl.ports import Session
from kestrelctl.protocol import answers, codec, work

log = logging.getLogger(__name__)

#: Error conditions of a bounced message whose receiver has no session.
GONE = ("service-unavailable", "recipient-unavailable", "item-not-found", "remote-server-not-found")

TOO_LARGE = UsageError("the answer is too large for one message", hint="ask for less at a time")


class ManagerListener:
    """Gives workers' messages to the core, users' to the dispatcher, and refuses the rest."""

    def __init__(
        self, service: Service, dispatcher: RequestDispatcher, access: Access, domain: str
    ) -> None:
        self._service = service
        self._now = service.now
        self._dispatcher = dispatcher
        self._access = access
        self._pool = f"pool@{domain}"
        self._jobs = f"jobs@{domain}"
        self.session: Session

    def status(self) -> str:
        """One line on how this manager is."""
        pool = self._service.pool
        return f"{self.session.link}; {len(pool.jobs):,} jobs active, {pool.online:,} workers"

    # -- Listener ----------------------------------------------------------------------------------

    def on_online(self) -> None:
        log.info("connected to the server")
        self._service.handle(ev.Reconnected(at=self._now(), cause="server"))
        self._dispatcher.enrollment.on_online()

    def on_offline(self, why: str) -> None:
        if self.session.refused:
            self._service.give_up(
                NotAllowed(
                    "the server refused the manager",
                    cause=self.session.refused,
                    hint="compare the secret file with `component_secret` of the server",
                )
            )
            return
        log.warning("the server is away: %s", why)
        self._service.handle(ev.Disconnected(at=self._now(), cause="server"))

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        self._service.stanzas.received(stanzas.PRESENCE)
        if kind == "unavailable" and to == self._pool and self._access.may_work(sender):
            self._service.handle(ev.Lost(at=self._now(), worker=sender, cause="unavailable"))

    def on_bounce(self, sender: str, condition: str) -> None:
        self._service.stanzas.received(stanzas.BOUNCE)
        if condition in GONE and self._access.may_work(sender):
            self._service.handle(ev.Bounced(at=self._now(), cause=sender, worker=sender))

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        if to == self._pool:
            self._from_worker(sender, payload)
        elif to == self._jobs:
            self._from_user(sender, payload, typed=False)

    def on_body(self, sender: str, to: str, body: str) -> None:
        if to == self._jobs:
            self._from_user(sender, body, typed=True)

    # -- workers -----------------------------------------------------------------------------------

    def _from_worker(self, sender: str, payload: str) -> None:
        if self._access.may_join(sender):
            self._from_joiner(sender, payload)
            return
        if self._dispatcher.enrollment.doubts(sender):
            self._dispatcher.enrollment.check(sender)
            return
        if not self._access.may_work(sender):
            self._service.stanzas.received(stanzas.FORBIDDEN, len(payload))
            self._refuse_worker(sender, "this account may not join as a worker")
            return
        try:
            message = codec.from_worker.decode(payload)
        except codec.BadMessage as error:
            self._service.stanzas.received(stanzas.UNREADABLE, len(payload))
            self._refuse_worker(sender, str(error))
            return
        self._service.stanzas.received(type(message), len(payload))
        handle = self._service.handle
        if isinstance(message, work.Report):
            handle(
                ev.Reported(
                    at=self._now(),
                    cause=sender,
                    worker=sender,
                    results=message.results,
                    seals=message.seals,
                )
            )
        elif isinstance(message, work.Heartbeat):
            handle(ev.Heard(at=self._now(), cause=sender, worker=sender))
        elif isinstance(message, work.Hello):
            self._hello(sender, message)
        elif isinstance(message, work.Returned):
            handle(
                ev.Returned(at=self._now(), cause=sender, worker=sender, numbers=message.numbers)
            )
        elif isinstance(message, work.Leaving):
            handle(ev.Leaving(at=self._now(), cause=sender, worker=sender))
            self._service.acknowledge_now(sender)
        else:
            self._dispatcher.outputs.on_output(sender, message)

    def _from_joiner(self, sender: str, payload: str) -> None:
        try:
            message = codec.from_joiner.decode(payload)
        except codec.BadMessage as error:
            self._refuse_worker(sender, f"this account can only join the pool: {error}")
            return
        self._dispatcher.enrollment.join(
            sender,
            message,
            lambda answer: self.session.send(codec.encode(answer), sender, self._pool),
        )

    def _hello(self, sender: str, message: work.Hello) -> None:
        problem = problem_with_ad(message.ad)
        if message.version != work.VERSION:
            problem = f"this pool speaks version {work.VERSION}, the worker {message.version}"
        if problem:
            self._refuse_worker(sender, problem)
            return
        self._service.handle(
            ev.Joined(
                at=self._now(),
                cause=sender,
                worker=sender,
                incarnation=message.incarnation,
                greeting=message.greeting,
                said_at=message.at,
                ad=message.ad,
                holds=message.holds,
                claims=message.claims,
                seals=message.seals,
            )
        )

    def _refuse_worker(self, sender: str, reason: str) -> None:
        log.warning("refused a message of %s: %s", sender, reason)
        self._service.send_to_worker(sender, work.Refused(reason=reason))

    # -- users -------------------------------------------------------------------------------------

    def _from_user(self, sender: str, payload: str, *, typed: bool) -> None:
        def reply(message: answers.Reply) -> None:
            text = codec.encode(message)
            if not codec.fits(text):
                log.warning("an answer to %s is too large: %d bytes", sender, len(text))
                message = failed(message.id, TOO_LARGE)
                text = codec.encode(message)
            self._service.stanzas.sent(type(message), len(text))
            if typed:
                self.session.send_body(text, sender, self._jobs)
            else:
                self.session.send(text, sender, self._jobs)

        if not self._access.may_submit(sender):
            self._service.stanzas.received(stanzas.FORBIDDEN, len(payload))
            log.warning("refused a request of %s: no user of this pool", sender)
            refusal: KestrelError = NotAllowed("this account is no user of the pool")
            reply(failed(codec.id_in(payload), refusal))
            return
        try:
            request = codec.requests.decode(payload)
        except codec.BadMessage as error:
            self._service.stanzas.received(stanzas.UNREADABLE, len(payload))
            log.warning("refused a request of %s: %s", sender, error)
            refusal = UsageError("this is no request of the protocol", cause=str(error))
            reply(failed(codec.id_in(payload), refusal))
            return
        self._service.stanzas.received(type(request), len(payload))
        caller = Caller(sender, self._access.is_admin(sender), reply, self._access.share_jobs)
        self._dispatcher.serve(caller, request)
