"""`kestrelctl manager run`: puts a manager together and keeps it until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

from kestrelctl import logs
from kestrelctl.clock import now
from kestrelctl.core import events as ev
from kestrelctl.core.model.validate import problem_with_ad
from kestrelctl.core.pool import Pool
from kestrelctl.errors import KestrelError, NotAllowed, UsageError
from kestrelctl.manager.access import Access
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.desk import Desk, failed
from kestrelctl.manager.enrollment import Enrollment
from kestrelctl.manager.invited import Invited
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.service import Service
from kestrelctl.metrics import stanzas
from kestrelctl.notify import Notifier
from kestrelctl.protocol import answers, codec, work
from kestrelctl.store.sqlite import SqliteStore
from kestrelctl.xmpp import session
from kestrelctl.xmpp.accounts import Accounts

log = logging.getLogger(__name__)

#: What a bounced message says when its receiver has no session.
GONE = ("service-unavailable", "recipient-unavailable", "item-not-found", "remote-server-not-found")

TOO_LARGE = UsageError("the answer is too large for one message", hint="ask for less at a time")


class Manager:
    """Sorts what arrives: workers' messages to the core, users' to the desk, the rest refused."""

    def __init__(self, service: Service, desk: Desk, access: Access, domain: str) -> None:
        self._service = service
        self._desk = desk
        self._access = access
        self._pool = f"pool@{domain}"
        self._jobs = f"jobs@{domain}"
        self.session: session.Session

    def status(self) -> str:
        """One line on how this manager is."""
        state = self._service.pool.state
        return f"{self.session.link}; {len(state.jobs):,} jobs active, {state.online:,} workers"

    # -- Listener ----------------------------------------------------------------------------------

    def on_online(self) -> None:
        log.info("connected to the server")
        self._service.handle(ev.Reconnected(at=now(), id="server"))
        self._desk.enrollment.on_online()

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
        self._service.handle(ev.Disconnected(at=now(), id="server"))

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        self._service.stanzas.received(stanzas.PRESENCE)
        if kind == "unavailable" and to == self._pool and self._access.may_work(sender):
            self._service.handle(ev.Lost(at=now(), id=sender, worker=sender, cause="unavailable"))

    def on_bounce(self, sender: str, condition: str) -> None:
        self._service.stanzas.received(stanzas.BOUNCE)
        if condition in GONE and self._access.may_work(sender):
            self._service.handle(ev.Bounced(at=now(), id=sender, worker=sender))

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
        if self._desk.enrollment.doubts(sender):
            self._desk.enrollment.check(sender)
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
            handle(ev.Reported(at=now(), id=sender, worker=sender, results=message.results))
        elif isinstance(message, work.Heartbeat):
            handle(ev.Heard(at=now(), id=sender, worker=sender))
        elif isinstance(message, work.Hello):
            self._hello(sender, message)
        elif isinstance(message, work.Returned):
            handle(ev.Returned(at=now(), id=sender, worker=sender, numbers=message.numbers))
        elif isinstance(message, work.Leaving):
            handle(ev.Leaving(at=now(), id=sender, worker=sender))
            self._service.acknowledge_now(sender)
        else:
            self._desk.outputs.on_output(sender, message)

    def _from_joiner(self, sender: str, payload: str) -> None:
        try:
            message = codec.from_joiner.decode(payload)
        except codec.BadMessage as error:
            self._refuse_worker(sender, f"this account can only join the pool: {error}")
            return
        self._desk.enrollment.join(
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
                at=now(),
                id=sender,
                worker=sender,
                incarnation=message.incarnation,
                greeting=message.greeting,
                said_at=message.at,
                ad=message.ad,
                holds=message.holds,
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
        caller = Caller(sender, self._access.is_admin(sender), reply)
        self._desk.serve(caller, request)


async def _told_to_stop() -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


async def serve(options: ManagerOptions) -> None:
    """Runs a manager until SIGTERM or SIGINT.

    Raises:
        KestrelError: the store cannot be opened, the server refuses the secret, or the address for
            the metrics cannot be had.
    """
    from_stdin = str(options.secret_file) == "-"
    secret = (sys.stdin.read() if from_stdin else options.secret_file.read_text()).strip()
    store = SqliteStore(options.data_dir)
    pool = Pool(store.open())
    gc.collect()
    gc.freeze()
    log.info(
        "manager of %s, start %d: %d active jobs", options.domain, pool.state.epoch,
        len(pool.state.jobs),
    )  # fmt: skip
    access = Access(options)
    service = Service(pool, store, options.domain)
    accounts = Accounts(lambda: service.session, f"pool@{options.domain}")
    invited = Invited(options.data_dir / "invited")
    desk = Desk(service, Enrollment(service, accounts, access, invited))
    manager = Manager(service, desk, access, options.domain)
    service.session = manager.session = session.component(
        options.domain,
        secret,
        options.host,
        options.port,
        manager,
        tls=options.tls,
        ca_file=options.ca_file,
    )
    notifier = Notifier(manager.status)
    told = asyncio.ensure_future(_told_to_stop())
    service.broken.add_done_callback(lambda _: told.cancel())
    monitor = None
    try:
        if options.metrics:
            from kestrelctl.manager.monitor import watch

            monitor = await watch(options.metrics, service)
        manager.session.start()
        notifier.ready()
        await asyncio.wait({told})
        notifier.stopping()
        if service.broken.done():
            raise service.broken.result()
    finally:
        told.cancel()
        if monitor is not None:
            await monitor.stop()
        await service.close()
        await manager.session.stop()
        store.close()
        notifier.close()
    log.info("stopped")


def run(options: ManagerOptions) -> None:
    """The daemon's main program."""
    logs.set_up(options.log_format, verbose=options.verbose)
    try:
        asyncio.run(serve(options))
    except OSError as error:
        raise KestrelError("the manager cannot start", cause=str(error)) from error
