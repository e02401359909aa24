"""`kestrelctl manager run`: puts a manager together and keeps it until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

import psutil

from kestrelctl import clock, garbage, logs
from kestrelctl.beside import beside
from kestrelctl.checkout import own_version
from kestrelctl.child_program import adopt_orphans
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.membership.handler_definition import HandlerDefinition
from kestrelctl.core.membership.roll import GONE_KINDS
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.pool import Pool
from kestrelctl.core.triggers.definition import TriggerDefinition
from kestrelctl.errors import KestrelError, SteppedBack, StoreTaken, why
from kestrelctl.manager.access import Access
from kestrelctl.manager.accounts import TemporaryAccounts
from kestrelctl.manager.chat.disco import Disco
from kestrelctl.manager.chat.iq_requests import IqRequests
from kestrelctl.manager.chat.profile_pings import keep_pinging
from kestrelctl.manager.environments.accounts import EnvironmentAccounts
from kestrelctl.manager.environments.classes import read_all_classes
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.handlers.files import open_handlers, read_all_handlers
from kestrelctl.manager.listener import ManagerListener
from kestrelctl.manager.mail.mails import Mails
from kestrelctl.manager.members.enrollment import EnrollmentRequests
from kestrelctl.manager.members.log import MemberEvents
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.other_pools import OtherPools
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.requests.pool import Usage
from kestrelctl.manager.retention import retention
from kestrelctl.manager.sending.queue import SendQueue
from kestrelctl.manager.service import Service
from kestrelctl.manager.standby import keep_leading, opened, serving_standby_metrics
from kestrelctl.manager.store_of import store_of
from kestrelctl.manager.triggers.files import open_triggers, read_all_triggers
from kestrelctl.metrics.endpoint import listen
from kestrelctl.metrics.flock_families import FlockNumbers
from kestrelctl.metrics.readers import Readers
from kestrelctl.notify import Notifier
from kestrelctl.store import kept_text
from kestrelctl.store.port import Store
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.accounts import Accounts

log = logging.getLogger(__name__)

#: A manager that has stepped back lets others be faster for so long.
STEP_BACK_SECONDS = 1.0


class Flock(Protocol):
    """The manager's part in a flock of pools: `flock.service.open_flock` in production."""

    @property
    def others(self) -> OtherPools:
        """The flock, as the manager asks it."""
        ...

    def numbers(self) -> FlockNumbers:
        """The numbers of the flock, for the metrics."""
        ...

    def begin(self) -> None:
        """Joins, if the pool is to be in a flock."""

    async def close(self) -> None:
        """Stops, because the manager does."""


FlockOpener: TypeAlias = Callable[
    [Service, RequestDispatcher, ManagerOptions, Callable[[], xmpp_session.XmppSession]], Flock
]


async def _told_to_stop() -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


async def _say_repeats() -> None:
    """Logs in time what was left out of the log, though nothing new is to be logged."""
    while True:
        await asyncio.sleep(logs.MINUTE_SECONDS)
        logs.repeats.say()


def usage_of(process: psutil.Process) -> Callable[[], Usage]:
    """Tells what a process takes of its machine."""

    def usage() -> Usage:
        cpu = process.cpu_times()
        return Usage(cpu_seconds=cpu.user + cpu.system, rss_bytes=process.memory_info().rss)

    return usage


class _Prepared(NamedTuple):
    """The parts of a start that a manager has found in order before it opens its store.

    Attributes:
        classes: of environments, and the recipes of those that have one.
        listening: the socket at which metrics are served; None for nowhere.
    """

    access: Access
    classes: tuple[dict[str, EnvironmentClass], dict[str, str]]
    handlers: list[HandlerDefinition]
    triggers: list[TriggerDefinition]
    readers: Readers
    listening: socket.socket | None


def _prepare(options: ManagerOptions) -> _Prepared:
    """Checks all that may be wrong with a start.

    The store is opened after that: from then on its epoch is this manager's, and one that still has
    the store elsewhere cannot go on.

    Raises:
        UsageError: an option, or a file that one names, is wrong.
        KestrelError: the address for the metrics cannot be had.
    """
    xmpp_session.check_component(options.host, tls=options.tls, ca_file=options.ca_file)
    classes = read_all_classes(options.environments)
    handlers = read_all_handlers(options.handlers, with_mail=options.mail is not None)
    names = {each.name for each in handlers}
    return _Prepared(
        access=Access(options),
        classes=classes,
        handlers=handlers,
        triggers=read_all_triggers(options.triggers, names, classes[0]),
        readers=Readers(options.metrics_allow),
        listening=listen(options.metrics) if options.metrics else None,
    )


async def serve(options: ManagerOptions, secret: str, open_flock: FlockOpener) -> None:
    """Runs a manager until SIGTERM or SIGINT.

    Args:
        secret: that of the component.
        open_flock: makes its flock.

    Raises:
        KestrelError: see `_prepare`; or the store cannot be opened, or the server refuses the
            secret.
        SteppedBack, StoreTaken: the pool has gone on with another manager.
    """
    prepared = _prepare(options)
    store = store_of(options)
    told = asyncio.ensure_future(_told_to_stop())
    if store.leadership is None:
        await _lead(options, secret, open_flock, prepared, store, store.open(), told)
        return
    standing_by = Notifier(lambda: "standing by")
    standing_by.ready()  # nobody has to wait until it leads
    try:
        async with serving_standby_metrics(prepared.listening, prepared.readers):
            server = (options.host, options.port)
            snapshot = await opened(store, store.leadership, server, told)
        standing_by.close()
        if snapshot is not None:
            await _lead(options, secret, open_flock, prepared, store, snapshot, told)
    finally:
        store.close()


async def _lead(
    options: ManagerOptions,
    secret: str,
    open_flock: FlockOpener,
    prepared: _Prepared,
    store: Store,
    snapshot: Snapshot,
    told: asyncio.Future[None],
) -> None:
    """Runs a manager whose store is open until it is told to stop."""
    access = prepared.access
    leadership = store.leadership
    pool = Pool(snapshot, options.config())
    garbage.settle()
    log.info(
        "manager of %s, start %d: %d active jobs", options.domain, pool.epoch,
        len(pool.jobs),
    )  # fmt: skip
    adopt_orphans()
    service = Service(pool, store, options.domain, clock)
    service.name = options.name or options.domain
    accounts = Accounts(lambda: connection, f"pool@{options.domain}")
    temporary = TemporaryAccounts(store.kept_text(kept_text.INVITED))
    enrollment = EnrollmentRequests(service, accounts, access, temporary)
    dispatcher = RequestDispatcher(service, enrollment, usage_of(psutil.Process()))
    flock = open_flock(service, dispatcher, options, lambda: connection)
    listener = ManagerListener(service, dispatcher, access, options.domain, flock.others)
    connection = xmpp_session.component(
        options.domain,
        secret,
        options.host,
        options.port,
        listener,
        tls=options.tls,
        ca_file=options.ca_file,
    )
    if leadership is None:
        connection.on_conflict = listener.on_conflict
    else:  # who leads is known without the server
        connection.may_speak = lambda: leadership.is_held
    queue = SendQueue(connection, clock.now, options.send_limits)
    service.session = listener.session = queue
    listener.on_away = queue.forget_waiting

    def forget_polls(told: MemberEvents) -> None:
        for event in told.events:
            if event.kind in GONE_KINDS:
                queue.forget_polls(event.worker)

    service.listen(MemberEvents, forget_polls)
    environments: EnvironmentService | None = None
    if options.environments:
        classes, recipes = prepared.classes
        environments = EnvironmentService(
            service,
            classes,
            recipes,
            enrollment,
            access.worker_hosts[0],
            EnvironmentAccounts(store.kept_text(kept_text.ENVIRONMENT_ACCOUNTS)),
        )
        dispatcher.serve_environments(environments)
        listener.on_environments = environments.on_here
    disco = Disco(service, listener.desk, listener.addresses)
    connection.serve_iq = IqRequests(service, dispatcher, access, disco, connection).on_iq
    notifier = Notifier(listener.status)
    handlers = open_handlers(service, prepared.handlers, options.mail)
    triggers = open_triggers(
        service,
        dispatcher,
        prepared.triggers,
        store.kept_text(kept_text.TRIGGERS_DISABLED),
        environments,
        handlers,
        options.events_kept_seconds,
    )
    service.broken.add_done_callback(lambda _: told.cancel())
    metrics = None
    stands_on = beside(
        _say_repeats(),
        keep_pinging(service, connection.ask_iq),
        retention(service, options).run(),
        handlers.run(),
        triggers.run(),
        Mails(service, options.mail).run(),
        keep_leading(leadership, service, connection),
    )
    try:
        async with stands_on:
            if prepared.listening is not None:
                from kestrelctl.manager.metrics import serve_metrics

                metrics = await serve_metrics(
                    prepared.listening,
                    prepared.readers,
                    service,
                    flock.numbers,
                    queue.waiting,
                    lambda: dispatcher.properties.summaries(options.property_metrics),
                    environments,
                )
            connection.start()
            flock.begin()
            notifier.ready()
            await asyncio.wait({told})
            notifier.stopping()
        if service.broken.done():
            raise service.broken.result()
    finally:
        told.cancel()
        if metrics is not None:
            await metrics.stop()
        await flock.close()
        await service.close()
        await connection.stop()
        store.close()
        notifier.close()
    log.info("stopped")


def run(options: ManagerOptions, open_flock: FlockOpener) -> None:
    """The daemon's main program.

    Args:
        open_flock: makes its flock.
    """
    logs.set_up(options.log_format, verbose=options.verbose)
    own_version()  # asked for later, it would keep users waiting
    try:
        from_stdin = str(options.secret_file) == "-"
        secret = (sys.stdin.read() if from_stdin else options.secret_file.read_text()).strip()
        while True:
            try:
                asyncio.run(serve(options, secret, open_flock))
                return
            except (SteppedBack, StoreTaken) as error:
                if not options.postgresql:
                    raise
                log.warning("%s; it stands by from now on", error)
                time.sleep(STEP_BACK_SECONDS)
    except OSError as error:
        cause = f"{error.filename}: {why(error)}" if error.filename else why(error)
        raise KestrelError("the manager cannot start", cause=cause) from error
