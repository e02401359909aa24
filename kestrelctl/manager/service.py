"""The shell around the core: hands it what arrives, and does what it decides, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from kestrelctl.clock_and_session import Clock, Session
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.pool import Pool
from kestrelctl.errors import Busy, KestrelError, StoreFull
from kestrelctl.manager.chat.profile_workers import ProfileWorkers
from kestrelctl.manager.commits import GroupCommit
from kestrelctl.manager.members.log import MemberEvents, MemberLog
from kestrelctl.manager.sending.acknowledgements import Acknowledgements
from kestrelctl.manager.sending.handouts import Handouts
from kestrelctl.manager.wall_clock import LOOK_SECONDS, WallClock
from kestrelctl.metrics.mail_counts import MailCounts
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.protocol import codec, workers
from kestrelctl.protocol.chat import profile
from kestrelctl.protocol.handout import run_messages
from kestrelctl.protocol.message import Message
from kestrelctl.store.port import Store
from kestrelctl.timer import Timer

log = logging.getLogger(__name__)

#: The core is not woken sooner than this, whatever is due.
SHORTEST_PAUSE_SECONDS = 0.01
#: The most attempts that one message names; each takes up to 20 bytes of `codec.MAX_PAYLOAD_BYTES`.
MOST_NUMBERS = 10_000

#: The most events of members, the latest ones, that wait to be told while nothing can be stored.
MOST_UNTOLD_EVENTS = 1_000

A = TypeVar("A", bound=fx.Announcement)


class Service:
    """A pool at work.

    Args:
        pool: the core, restored from the store.
        store: the store into which records go.
        domain: the pool's address.
        clock: the clock by which events are dated.

    Attributes:
        name: what users call the pool in commands: its domain, unless it has another name.
    """

    def __init__(self, pool: Pool, store: Store, domain: str, clock: Clock) -> None:
        self.pool = pool
        self.store = store
        self.domain = self.name = domain
        self.clock = clock
        self.now = clock.now
        self.session: Session
        self.started_at = self.now()
        self.wall = WallClock(clock)
        self.stanzas = StanzaCounts()
        self.mails = MailCounts()
        #: Whether there is a server that takes mail to users.
        self.sends_mail = False
        self._sender = f"pool@{domain}"
        self._scheduled = False
        self._loop = asyncio.get_running_loop()
        self._timer = Timer(self._tick, self._loop)
        self._looking = Timer(self.look_at_clock, self._loop)
        self._looking.set(LOOK_SECONDS)
        #: The times that the server refused this manager because another one was connected.
        self.conflicts = 0
        #: Set by `give_up`.
        self.broken: asyncio.Future[KestrelError] = self._loop.create_future()
        #: The time since which the store cannot be written; None while it can.
        self.store_error_since: float | None = None
        self.commits = GroupCommit(
            store, self._do, self._store_changed, self._refuse_answers, self.give_up
        )
        #: The log of what became of workers.
        self.member_log = MemberLog(
            store, pool.worker_groups, self.commits.write, self.commits.after
        )
        self._acknowledgements = Acknowledgements(
            lambda worker, numbers: self._send_numbers(workers.Ack, worker, numbers)
        )
        self._handouts = Handouts(store, self._send_run)
        #: Called after work was handed out.
        self.after_schedule: list[Callable[[], None]] = []
        #: Takes what a worker has said; the listener sets it.
        self.hear: Callable[[str, workers.FromWorker], None] = lambda worker, message: None
        #: The workers that are sent chat messages and nothing else.
        self.profiles = ProfileWorkers(
            lambda worker, message: self.hear(worker, message),
            self._chat,
            self._claim_of,
            self.now,
        )
        self._listeners: dict[type[fx.Announcement], list[Callable[[Any], None]]] = {}
        self._performers: dict[type[fx.Effect], Callable[[Any], None]] = {
            fx.Run: self._handouts.hand_out,
            fx.Acknowledge: self._acknowledge,
            fx.Welcome: self._welcome,
            fx.Kill: self._kill,
            fx.TakeCheckpoints: self._take_checkpoints,
            fx.Recall: self._recall,
            fx.AskWho: self._ask_who,
            fx.SetHeartbeat: self._set_heartbeat,
            fx.MemberChanged: self.member_log.on_changed,
            fx.MembersHeard: self.member_log.on_heard,
            fx.Feed: self._feed,
            fx.Note: self._note,
        }

    def managers(self) -> list[ManagerSeen]:
        """The managers that share the store; none if only one can have it."""
        leadership = self.store.leadership
        return leadership.managers() if leadership is not None else []

    # -- events ------------------------------------------------------------------------------------

    def handle(self, event: ev.Event) -> None:
        """Gives the core an event; work is handed out once the burst at hand is over.

        A manager that has given up decides nothing any more.
        """
        if self.broken.done():
            return
        self._perform(self.pool.handle(event))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._schedule)

    def _schedule(self) -> None:
        if self.broken.done():
            return
        self._scheduled = False
        moment = self.now()
        self._perform(self.pool.schedule(moment))
        self._set_timer(moment)
        for call in self.after_schedule:
            call()

    def _set_timer(self, moment: float) -> None:
        at = self.pool.wake_at(moment)
        if at is None:
            return
        self._timer.set_by(self._loop.time() + max(SHORTEST_PAUSE_SECONDS, at - moment))

    def _tick(self) -> None:
        self.handle(ev.Tick(at=self.now(), cause="tick"))

    def look_at_clock(self) -> None:
        """Makes moments that people name, and that they are shown, follow the machine's clock."""
        self._looking.set(LOOK_SECONDS)
        if not self.wall.look():
            return
        ahead_seconds = self.wall.ahead_seconds
        log.warning("the machine's clock was set: %+.0f s since this manager began", ahead_seconds)
        self.handle(ev.ClockSet(at=self.now(), cause="clock", ahead_seconds=ahead_seconds))

    # -- effects -----------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Persist):
                self.commits.write(effect.records)
            elif effect.after_commit:
                self.commits.after(effect)
            else:
                self._do(effect)

    def _do(self, effect: fx.Effect) -> None:
        """Does what the core wants done."""
        if isinstance(effect, fx.Announcement):
            self._announce(effect)
        else:
            self._performers[type(effect)](effect)

    def listen(self, kind: type[A], listener: Callable[[A], None]) -> None:
        """Has a listener called with each announcement of a kind."""
        self._listeners.setdefault(kind, []).append(listener)

    def _announce(self, effect: fx.Announcement) -> None:
        for listener in self._listeners.get(type(effect), ()):
            listener(effect)

    def _send_run(self, effect: fx.Run, unreadable: Sequence[tuple[fx.Span, str]]) -> None:
        """Sends attempts with all that the message says.

        Args:
            unreadable: attempts that were handed out with them and cannot be sent, and why.
        """
        worker = effect.worker
        ack = self._acknowledgements.take(worker)
        if len(ack) > MOST_NUMBERS:
            for numbers in _parts(ack):
                self._send_now(worker, workers.Ack(numbers=numbers))
            ack = []
        unsent: list[Result] = []
        moment = self.now()

        def note(span: fx.Span, why: str) -> None:
            number, job_id, index, n, _ = span
            reason = EndKind.CANNOT_START.text(why)
            unsent.extend(
                Result(number + k, job_id, index + k, Outcome.FAILED, moment, 0.0, reason=reason)
                for k in range(n)
            )

        def too_large(span: fx.Span, why: str) -> None:
            note(span, f"it fits into no message to a worker: {why}")

        for span, why in unreadable:
            note(span, why)
        for message in run_messages(effect, ack, self.pool.seals, too_large):
            self._send_now(worker, message)
        if unsent:
            # Nobody else would ever say how they ended, and their places would stay taken.
            log.warning("%d attempts cannot be sent to %s", len(unsent), worker)
            self._loop.call_soon(self._end_unsent, worker, unsent)

    def _end_unsent(self, worker: str, results: list[Result]) -> None:
        """Has attempts end that were handed out and could not be sent."""
        self.handle(
            ev.Reported(at=self.now(), cause="too large", worker=worker, results=results, seals=[])
        )

    def _acknowledge(self, effect: fx.Acknowledge) -> None:
        self._acknowledgements.add(effect.worker, effect.numbers)
        known = self.pool.workers.get(effect.worker)
        if known is not None and known.leaving:
            self.acknowledge_now(effect.worker)

    def _welcome(self, effect: fx.Welcome) -> None:
        self.send_to_worker(
            effect.worker,
            workers.Welcome(
                incarnation=effect.incarnation,
                greeting=effect.greeting,
                heartbeat_seconds=effect.heartbeat_seconds,
                usage_seconds=effect.usage_seconds,
                kill=effect.kill,
                epoch=self.pool.rank.sealed,
            ),
        )

    def _kill(self, effect: fx.Kill) -> None:
        self._send_numbers(workers.Kill, effect.worker, effect.numbers)

    def _take_checkpoints(self, effect: fx.TakeCheckpoints) -> None:
        for first in range(0, max(len(effect.numbers), len(effect.stop)), MOST_NUMBERS):
            part = slice(first, first + MOST_NUMBERS)
            message = workers.TakeCheckpoints(numbers=effect.numbers[part], stop=effect.stop[part])
            self.send_to_worker(effect.worker, message)

    def _recall(self, effect: fx.Recall) -> None:
        self._send_numbers(workers.Recall, effect.worker, effect.numbers)

    def _ask_who(self, effect: fx.AskWho) -> None:
        known = self.pool.workers.get(effect.worker)
        if known is not None and known.ad.version == profile.VERSION:
            self.profiles.ask(effect.worker)
            return
        self.send_to_worker(effect.worker, workers.Who())

    def _set_heartbeat(self, effect: fx.SetHeartbeat) -> None:
        message = workers.SetHeartbeat(heartbeat_seconds=effect.heartbeat_seconds)
        self.send_to_worker(effect.worker, message)

    def _feed(self, effect: fx.Feed) -> None:
        self.handle(msgspec.structs.replace(effect.event, at=self.now()))

    def _note(self, effect: fx.Note) -> None:
        level = logging.WARNING if effect.level == "warning" else logging.INFO
        log.log(level, "%s", effect.text)

    def _send_numbers(
        self,
        kind: type[workers.Ack | workers.Kill | workers.Recall],
        worker: str,
        numbers: list[int],
    ) -> None:
        """Sends as many messages as it takes: the server ends the manager's link at a large one."""
        for part in _parts(numbers):
            self.send_to_worker(worker, kind(numbers=part))

    def send_to_worker(self, worker: str, message: workers.ToWorker) -> None:
        """Sends a worker a message, as the pool, behind what waits for the store."""
        if self._handouts.is_waiting(worker):
            self._handouts.behind(worker, lambda: self._send_now(worker, message))
        else:
            self._send_now(worker, message)

    def _send_now(self, worker: str, message: workers.ToWorker) -> None:
        if worker in self.profiles:
            self.profiles.tell(worker, message)
            return
        self.tell(worker, message)

    def tell(self, worker: str, message: Message) -> None:
        """Sends a worker a message that does not concern the core, as the pool."""
        text = codec.encode(message)
        self.stanzas.sent(type(message), len(text))
        self.session.send(text, worker, self._sender)

    def _chat(self, worker: str, message: profile.ToProfileWorker) -> None:
        text = codec.encode_for_chat(message)
        self.stanzas.sent(type(message), len(text))
        self.session.send_body(text, worker, self._sender)

    def _claim_of(self, job_id: int) -> Claim:
        job = self.pool.job(job_id)
        return Claim(job.shape.request if job is not None else {})

    def acknowledge_now(self, worker: str) -> None:
        """Sends a worker the acknowledgements that wait for company."""
        self._acknowledgements.send_now(worker)

    # -- durability --------------------------------------------------------------------------------

    @property
    def store_error(self) -> str:
        """The reason why the store cannot be written now; empty if it can."""
        return self.commits.store_error

    @property
    def commit_seconds(self) -> Histogram:
        """The times that commits took."""
        return self.commits.seconds

    def unstored(self) -> dict[int, Counts]:
        """Counts, for each job, ended tasks that are not durable, and so not to be shown as ended.

        Empty while the store can be written: then that is a matter of milliseconds.
        """
        return self.commits.unstored() if self.store_error else {}

    def must_store(self) -> None:
        """Refuses what is decided now if it would not become durable, or not here.

        Raises:
            StoreFull: the store cannot be written.
            Busy: this may be the older one of two managers.
        """
        if self.is_contested:
            raise Busy(
                "another manager of this pool was connected; nothing was changed",
                cause="this one is still asking the workers which of the two came later",
                hint="try again in a few seconds",
            )
        if self.store_error:
            raise StoreFull(
                "the manager cannot store this now; nothing was changed",
                cause=self.store_error,
                hint="try again when there is room; `kestrelctl pool status` tells",
            )

    def _store_changed(self, error: str) -> None:
        """Makes the core hold back what could not be kept."""
        moment = self.now()
        if error:
            if self.store_error_since is None:
                self.store_error_since = moment
            self.handle(ev.StoreFailing(at=moment, cause="store", why=error))
        else:
            self.store_error_since = None
            self.handle(ev.StoreWell(at=moment, cause="store"))

    def _refuse_answers(self, waiting: list[fx.Effect]) -> None:
        """Tells users that the disk is full, so that they need not wait for it."""
        events = [effect for effect in waiting if isinstance(effect, MemberEvents)]
        too_many = {id(effect) for effect in events[:-MOST_UNTOLD_EVENTS]}
        waiting[:] = [effect for effect in waiting if id(effect) not in too_many]
        for effect in list(waiting):
            if isinstance(effect, fx.Answer):
                waiting.remove(effect)
                self._announce(
                    fx.Answer(
                        request=effect.request,
                        error=StoreFull.code,
                        message=f"the manager cannot store this now ({self.store_error})",
                        hint="it keeps trying; free space, then see `kestrelctl job list`",
                    )
                )

    @property
    def is_contested(self) -> bool:
        """Whether this manager has met another one, and workers have yet to say which came later.

        It promises nothing until then: what the older one of two is told is lost.
        """
        return self.conflicts > 0 and not self.pool.has_heard

    def give_up(self, error: KestrelError) -> None:
        """Ends the manager: going on would break what was promised, or help nobody."""
        if not self.broken.done():
            self.broken.set_result(error)

    async def close(self) -> None:
        """Waits until what was decided is durable, then stops."""
        await self.commits.close()
        self._handouts.drop()
        self._acknowledgements.send_all()
        self._looking.stop()
        self._timer.stop()


def _parts(numbers: list[int]) -> Iterator[list[int]]:
    """Yields as many of them at a time as a message may name."""
    for first in range(0, len(numbers), MOST_NUMBERS):
        yield numbers[first : first + MOST_NUMBERS]
