"""Takes what arrives from the server to the parts of the manager that deal with it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from kestrelctl.chat.sentences import CORRECTS, unread
from kestrelctl.chat.typed_json import is_json, plain_json
from kestrelctl.clock_and_session import Session
from kestrelctl.core import events as ev
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.errors import KestrelError, NotAllowed, SteppedBack, UsageError
from kestrelctl.manager.access import Access, bare
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.chat.addresses import Addresses
from kestrelctl.manager.chat.conversations import Conversations
from kestrelctl.manager.chat.notices import Notices
from kestrelctl.manager.chat.presence import PresenceService
from kestrelctl.manager.other_pools import NO_OTHER_POOLS, OtherPools
from kestrelctl.manager.requests.dispatch import RequestDispatcher, failed
from kestrelctl.manager.requests.parent_files import ParentFileAnswers
from kestrelctl.manager.sending.outbox import SMALL_BYTES
from kestrelctl.manager.sending.turns import TOO_MANY, WORKER_LINES, Turns
from kestrelctl.manager.service import Service
from kestrelctl.metrics import stanzas
from kestrelctl.protocol import answers, codec, directions
from kestrelctl.protocol import workers as work
from kestrelctl.protocol.channels import FromTask
from kestrelctl.protocol.chat import profile
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatKind, ChatMarks
from kestrelctl.protocol.commands import CommandDone, CommandsHere
from kestrelctl.protocol.properties import PropertiesHere
from kestrelctl.protocol.workers import EnvironmentsHere

log = logging.getLogger(__name__)

#: The names under which the manager of another pool is met.
POOLS_ACCOUNTS = ("flock", "pool")
#: Error conditions of a bounced message whose receiver has no session.
GONE = ("service-unavailable", "recipient-unavailable", "item-not-found", "remote-server-not-found")

TOO_LARGE = UsageError("the answer is too large for one message", hint="ask for less at a time")


class ManagerListener:
    """Gives workers' messages to the core, users' to the dispatcher, and refuses the rest."""

    def __init__(
        self,
        service: Service,
        dispatcher: RequestDispatcher,
        access: Access,
        domain: str,
        others: OtherPools = NO_OTHER_POOLS,
    ) -> None:
        self._others = others
        self._turns = Turns(service.now, WORKER_LINES)
        self._service = service
        service.hear = self._heard
        self._now = service.now
        self._dispatcher = dispatcher
        self._access = access
        self.addresses = Addresses(domain)
        self.desk = PresenceService(service, access, self.addresses)
        self._pool = self.addresses.pool
        self._jobs = self.addresses.jobs
        self._conversations = Conversations(service, dispatcher, access)
        self._notices = Notices(service)
        self._parent_files = ParentFileAnswers(service)
        self.session: Session
        #: Called with what workers' machines that make environments say of them.
        self.on_environments: Callable[[str, EnvironmentsHere], None] = lambda worker, said: None
        #: Called when the connection is lost.
        self.on_away: Callable[[], None] = lambda: None

    def status(self) -> str:
        """One line on the state of this manager."""
        pool = self._service.pool
        jobs, workers = plural(len(pool.jobs), "job"), plural(pool.online, "worker")
        return f"{self.session.link}; {jobs} active, {workers}"

    # -- Listener ----------------------------------------------------------------------------------

    def on_online(self) -> None:
        log.info("connected to the server")
        self._service.profiles.on_online()
        self._service.handle(ev.Reconnected(at=self._now(), cause="server"))
        self._dispatcher.enrollment.on_online()
        self._notices.on_online()
        self._others.on_online()

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
        self.on_away()
        self.desk.forget_all()
        self._others.on_offline()
        self._service.handle(ev.Disconnected(at=self._now(), cause="server"))

    def on_conflict(self) -> None:
        """Notes that the server says that another manager of this pool is connected."""
        self._service.conflicts += 1

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        self._service.stanzas.received(stanzas.PRESENCE)
        shows = {"available": self._shown, "unavailable": self._lost}.get(kind)
        if shows is not None and to == self._pool and self._may_work(sender):
            # In turn: what it said before it left counts, and may have been its results.
            if not self._turns.take(sender, bare(sender), 0, lambda: shows(sender)):
                shows(sender)
        elif self._access.may_submit(sender):
            turns, account = self._dispatcher.turns, bare(sender)
            said = partial(self.desk.on_presence, sender, to, kind)
            turns.take(sender, account, 0, lambda: turns.spawn(account, said))

    def _shown(self, worker: str) -> None:
        self._service.profiles.on_presence(worker, "available")
        if worker in self._service.profiles:
            self._service.handle(ev.Heard(at=self._now(), cause=worker, worker=worker))

    def _lost(self, worker: str) -> None:
        self._service.profiles.on_presence(worker, "unavailable")
        self._service.handle(
            self._revoked(worker) or ev.Lost(at=self._now(), worker=worker, cause="unavailable")
        )

    def _revoked(self, worker: str) -> ev.Revoked | None:
        """Makes the event of a session's end whose account somebody deletes; None for others."""
        by = self._dispatcher.enrollment.revoked_by(worker)
        return ev.Revoked(at=self._now(), cause=by, worker=worker, by=bare(by)) if by else None

    def on_bounce(self, sender: str, condition: str) -> None:
        self._service.stanzas.received(stanzas.BOUNCE)
        account, _, domain = sender.partition("/")[0].rpartition("@")
        # Workers, and users here and elsewhere, are at other domains, too.
        if account in POOLS_ACCOUNTS and domain != self.addresses.domain:
            self._others.on_bounce(sender, condition)
        if condition in GONE and self._may_work(sender):
            self._service.profiles.on_presence(sender, "unavailable")
            self._service.handle(
                self._revoked(sender) or ev.Bounced(at=self._now(), cause=sender, worker=sender)
            )
        elif condition in GONE:
            dropped = self._dispatcher.forget(sender)
            if dropped:
                log.warning("%s left without its answers: %d are dropped", sender, dropped)

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        if to == self._pool:
            self._take_work(sender, payload)
        elif to == self._jobs:
            self._take_request(sender, payload)
        elif self._others.is_ours(to):
            self._take_from_pool(sender, to, payload)

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        job_id = self.addresses.job_id(to)
        if to == self._pool:
            self._take_work(sender, body, typed=marks)
        elif job_id is not None:
            address = self.addresses.job(job_id)
            self._conversations.take(sender, address, body, TOO_MANY, job_id, marks)
        elif to == self._jobs and marks.kind is ChatKind.WORDS and is_json(body):
            self._take_request(sender, body, typed=marks)
        elif to in (self._jobs, self.addresses.domain):
            self._conversations.take(sender, to, body, TOO_MANY, marks=marks)

    # -- workers -----------------------------------------------------------------------------------

    def _may_work(self, jid: str) -> bool:
        """Whether that address may be a worker: one of the pool's own, or a loan of another."""
        return self._access.may_work(jid) or self._others.may_work(jid)

    def _take_from_pool(self, sender: str, to: str, payload: str) -> None:
        """Deals with what another pool sends in its turn, or drops it."""
        done = self._turns.take(
            sender,
            bare(sender),
            len(payload),
            lambda: self._others.on_payload(sender, to, payload),
        )
        if not done:
            self._service.stanzas.received(stanzas.BUSY, len(payload))
            log.warning("dropped a message of %s: too many of its pool wait", sender)

    def _take_work(self, sender: str, payload: str, typed: ChatMarks | None = None) -> None:
        """Deals with what is sent to the pool in its account's turn, or drops it.

        Args:
            typed: what the program says of a chat message; None of any other.
        """
        done = self._turns.take(
            sender, bare(sender), len(payload), lambda: self._from_worker(sender, payload, typed)
        )
        if not done:
            self._service.stanzas.received(stanzas.BUSY, len(payload))
            log.warning("dropped a message of %s: too many of its account wait", sender)

    def _from_worker(self, sender: str, payload: str, said: ChatMarks | None) -> None:
        typed = said is not None
        if self._access.may_join(sender):
            self._from_joiner(sender, payload)
            return
        if self._dispatcher.enrollment.revoked_by(sender):
            self._dispatcher.enrollment.check(sender)
            return
        if not self._may_work(sender):
            self._service.stanzas.received(stanzas.FORBIDDEN, len(payload))
            reason = "this account may not join as a worker"
            if self._access.may_submit(sender):
                reason += f"; write to {self._jobs}"
            self._refuse_worker(sender, reason, typed=typed)
            return
        if said is not None and said.kind is not ChatKind.WORDS:
            self._service.stanzas.received(stanzas.UNREADABLE, len(payload))
            self._refuse_worker(sender, unread(said.kind), typed=typed)
            return
        try:
            message: directions.FromAnyWorker
            if typed:
                payload = plain_json(payload)
            if self._access.may_work(sender):
                message = directions.from_worker.decode(payload)
            else:
                message = directions.from_loan.decode(payload)
            self._service.stanzas.received(type(message), len(payload))
            if isinstance(message, profile.Profile | profile.Finish):
                typed = True
                self._service.profiles.take(sender, message)
                return
        except (codec.BadMessage, UsageError) as error:
            self._service.stanzas.received(stanzas.UNREADABLE, len(payload))
            self._refuse_worker(sender, str(error), typed=typed)
            return
        if isinstance(message, EnvironmentsHere):
            self._service.handle(ev.Heard(at=self._now(), cause=sender, worker=sender))
            self.on_environments(sender, message)
            return
        if isinstance(message, PropertiesHere):
            self._dispatcher.properties.on_here(sender, message)
            return
        if isinstance(message, CommandsHere):
            self._dispatcher.worker_commands.on_here(sender, message)
            return
        if isinstance(message, CommandDone):
            self._dispatcher.worker_commands.on_done(sender, message)
            return
        if isinstance(message, FromTask):
            self._service.handle(ev.Heard(at=self._now(), cause=sender, worker=sender))
            self._dispatcher.channels.on_from_task(sender, message)
            return
        self._heard(sender, message)

    def _heard(self, sender: str, message: work.FromWorker) -> None:
        handle = self._service.handle
        if isinstance(message, work.Report):
            if self._service.is_contested and not self._has_said_hello(sender):
                # Results would be lost if the older one of two managers acknowledged them. Workers
                # report again after their hello.
                handle(ev.Heard(at=self._now(), cause=sender, worker=sender))
                return
            handle(
                ev.Reported(
                    at=self._now(),
                    cause=sender,
                    worker=sender,
                    results=self._dated(message.results),
                    seals=message.seals,
                )
            )
        elif isinstance(message, work.Heartbeat):
            handle(ev.Heard(at=self._now(), cause=sender, worker=sender))
        elif isinstance(message, work.RunningUsage):
            handle(ev.Using(at=self._now(), cause=sender, worker=sender, uses=message.uses))
        elif isinstance(message, work.Staged):
            handle(ev.Staged(at=self._now(), cause=sender, worker=sender, stages=message.stages))
        elif isinstance(message, work.Hello):
            self._hello(sender, message)
        elif isinstance(message, work.Returned):
            handle(
                ev.Returned(at=self._now(), cause=sender, worker=sender, numbers=message.numbers)
            )
        elif isinstance(message, work.StoredCheckpoint):
            handle(
                ev.Checkpointed(
                    at=self._now(),
                    cause=sender,
                    worker=sender,
                    number=message.number,
                    made=message.made,
                    problem=message.problem,
                )
            )
        elif isinstance(message, work.Want):
            handle(
                ev.Wanted(at=self._now(), cause=sender, worker=sender, attempts=message.attempts)
            )
        elif isinstance(message, work.Leaving):
            handle(ev.Leaving(at=self._now(), cause=sender, worker=sender))
            self._service.acknowledge_now(sender)
        elif isinstance(message, work.Resized):
            self._resized(sender, message)
        elif isinstance(message, work.FindFiles):
            handle(ev.Heard(at=self._now(), cause=sender, worker=sender))
            self._turns.spawn(bare(sender), lambda: self._parent_files.answer(sender, message))
        else:
            # A sign of life as well: while a worker sends output, it gives no other.
            handle(ev.Heard(at=self._now(), cause=sender, worker=sender))
            self._dispatcher.outputs.on_output(sender, message)

    def _from_joiner(self, sender: str, payload: str) -> None:
        try:
            message = directions.from_joiner.decode(payload)
        except codec.BadMessage as error:
            self._refuse_worker(sender, f"this account can only join the pool: {error}")
            return
        self._dispatcher.enrollment.join(
            sender,
            message,
            lambda answer: self.session.send(codec.encode(answer), sender, self._pool),
        )

    def _has_said_hello(self, worker: str) -> bool:
        known = self._service.pool.workers.get(worker)
        return known is not None and known.synced

    def _steps_back(self, sender: str, shown: work.ShownEpoch) -> bool:
        """Whether a worker shows that the pool went on with another manager; then this one ends."""
        rank = self._service.pool.rank
        if shown[:2] <= rank.sealed[:2]:
            return False
        if not rank.is_below(shown):
            log.warning("%s shows an epoch that no manager of this pool has sealed", sender)
            return False
        term, epoch, _ = rank.sealed
        self._service.give_up(
            SteppedBack(
                "the pool has gone on with another manager, and this one steps back",
                cause=f"{sender} was told of term {shown[0]}, start {shown[1]} by the other one;"
                f" this store is of term {term}, start {epoch}",
                hint="stop this one for good, or, if it is to be the pool's manager, put a backup"
                " of the other one's store in its place with `kestrelctl manager restore`",
            )
        )
        return True

    def _dated(self, results: list[Result]) -> list[Result]:
        """Converts the starts of results to the pool's clock, where machines' are set alike."""
        ahead_seconds = self._service.wall.ahead_seconds
        if not ahead_seconds:
            return results
        return [replace(each, started_at=each.started_at - ahead_seconds) for each in results]

    def _hello(self, sender: str, message: work.Hello) -> None:
        if message.epoch is not None and self._steps_back(sender, message.epoch):
            return
        ad = self._admitted(sender, message.ad)
        problem = problem_with_ad(ad)
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
                ad=ad,
                holds=message.holds,
                claims=message.claims,
                seals=message.seals,
                stages=message.stages,
                wants=message.wants,
            )
        )

    def _resized(self, sender: str, message: work.Resized) -> None:
        ad = self._admitted(sender, message.ad)
        problem = problem_with_ad(ad)
        if problem:
            self._refuse_worker(sender, problem)
            return
        self._service.handle(ev.Resized(at=self._now(), cause=sender, worker=sender, ad=ad))
        self._dispatcher.resizes.on_resized(sender, message)

    def _admitted(self, sender: str, ad: WorkerAd) -> WorkerAd:
        """Limits an ad to what counts: a pool's own workers say themselves what they offer."""
        if ad.properties:
            ad = replace(ad, properties={})  # They are told by themselves, and in time.
        return ad if self._access.may_work(sender) else self._others.admitted(sender, ad)

    def _refuse_worker(self, sender: str, reason: str, *, typed: bool = False) -> None:
        log.warning("refused a message of %s: %s", sender, reason)
        if typed:
            self._service.profiles.refuse(sender, reason)
        else:
            self._service.send_to_worker(sender, work.Refused(reason=reason))

    # -- users -------------------------------------------------------------------------------------

    def _take_request(self, sender: str, payload: str, typed: ChatMarks | None = None) -> None:
        """Answers a request in its account's turn, or refuses it unread.

        Args:
            typed: what the program says of a chat message; None of any other.
        """
        reply = self._reply(sender, typed=typed is not None)
        done = self._dispatcher.turns.take(
            sender,
            bare(sender),
            len(payload),
            lambda: self._from_user(sender, payload, reply, typed),
        )
        if not done:
            self._service.stanzas.received(stanzas.BUSY, len(payload))
            log.warning("refused a request of %s: too many of its account wait", sender)
            # The id is looked for only where that is cheap: this must cost less than an answer.
            small = len(payload) <= SMALL_BYTES
            reply(failed(codec.id_in(payload) if small else "", TOO_MANY))

    def _reply(self, sender: str, *, typed: bool) -> Callable[[answers.Reply], None]:
        def reply(message: answers.Reply) -> None:
            text = codec.encode(message)
            if not codec.fits(text):
                log.warning("an answer to %s is too large: %d bytes", sender, len(text))
                message = failed(message.id, TOO_LARGE)
                text = codec.encode(message)
            if self._dispatcher.outbox.put(sender, text, typed=typed):
                self._service.stanzas.sent(type(message), len(text))
            else:
                self._service.stanzas.sent(stanzas.DROPPED, len(text))
                log.warning("dropped an answer to %s: it does not take those that wait", sender)

        return reply

    def _from_user(
        self,
        sender: str,
        payload: str,
        reply: Callable[[answers.Reply], None],
        typed: ChatMarks | None,
    ) -> None:
        if not self._access.may_submit(sender):
            self._service.stanzas.received(stanzas.FORBIDDEN, len(payload))
            log.warning("refused a request of %s: no user of this pool", sender)
            refusal: KestrelError = NotAllowed("this account is no user of the pool")
            reply(failed(codec.id_in(payload), refusal))
            return
        if typed is not None and typed.corrects:
            self._service.stanzas.received(stanzas.UNREADABLE, len(payload))
            reply(failed(codec.id_in(payload), CORRECTS))
            return
        try:
            if typed is not None:
                payload = plain_json(payload)
            request = directions.requests.decode(payload)
        except (codec.BadMessage, UsageError) as error:
            self._service.stanzas.received(stanzas.UNREADABLE, len(payload))
            log.warning("refused a request of %s: %s", sender, error)
            refusal = UsageError(
                "this is no request of the protocol",
                cause=str(error),
                hint=error.hint if isinstance(error, UsageError) else None,
            )
            reply(failed(codec.id_in(payload), refusal))
            return
        self._service.stanzas.received(type(request), len(payload))
        self._dispatcher.serve(Caller.of(self._access, sender, reply), request)
