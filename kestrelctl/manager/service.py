"""The shell around the core: hands it what arrives, and does what it decides, in order.

Commits are grouped without a timer: while one is under way the next one gathers; when it is done,
what depended on it is released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.records import Record
from kestrelctl.core.pacing.pace import Pace
from kestrelctl.core.pool import Pool
from kestrelctl.errors import KestrelError, StoreFull
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.ports import Clock, Session
from kestrelctl.protocol import codec, work
from kestrelctl.protocol.handout import run_messages
from kestrelctl.store.port import Store

log = logging.getLogger(__name__)

E = TypeVar("E", bound=fx.Effect)

#: Pause before a failed commit is tried again.
RETRY_SECONDS = 1.0
#: How long an acknowledgement may wait for attempts to travel with. A worker that is leaving waits
#: for
#: it, any other only keeps the result a little longer.
ACK_SECONDS = 2.0
#: Commits in a row that follow each other at once, and their rate under lasting load: an idle pool
#: answers without delay, a busy one pays for fewer disk flushes.
COMMIT_BURST = 20.0
COMMITS_PER_SECOND = 50.0
#: Seconds of a commit.
COMMIT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Service:
    """A pool at work.

    Args:
        pool: the core, restored from the store.
        store: where records go.
        domain: the pool's address.
        clock: what events are dated by.
    """

    def __init__(self, pool: Pool, store: Store, domain: str, clock: Clock) -> None:
        self.pool = pool
        self.store = store
        self.domain = domain
        self.now = clock.now
        self.session: Session
        self._listeners: dict[type[fx.Effect], list[Callable[[Any], None]]] = {}
        self.started_at = self.now()
        self.store_error = ""
        self.commit_times = Histogram(COMMIT_BOUNDS)
        self.stanzas = StanzaCounts()
        self._sender = f"pool@{domain}"
        self._records: list[Record] = []
        self._after: list[fx.Effect | Callable[[], None]] = []
        self._work = asyncio.Event()
        self._committing = False
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._acks: dict[str, list[int]] = {}
        self._ack_timer: asyncio.TimerHandle | None = None
        self._pace = Pace(COMMITS_PER_SECOND, COMMIT_BURST)
        self._loop = asyncio.get_running_loop()
        #: Set by `give_up`.
        self.broken: asyncio.Future[KestrelError] = self._loop.create_future()
        self._commits = self._loop.create_task(self._commit_forever())

    # -- in ----------------------------------------------------------------------------------------

    def handle(self, event: ev.Event) -> None:
        """Gives the core an event; work is handed out once the burst at hand is over."""
        self._perform(self.pool.handle(event))
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._schedule)

    def _schedule(self) -> None:
        self._scheduled = False
        moment = self.now()
        self._perform(self.pool.schedule(moment))
        self._set_timer(moment)

    def _set_timer(self, moment: float) -> None:
        at = self.pool.wake_at(moment)
        if at is None:
            return
        due = self._loop.time() + max(0.01, at - moment)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.handle(ev.Tick(at=self.now(), cause="tick"))

    # -- out ---------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Persist):
                self._records.extend(effect.records)
                self._work.set()
            elif effect.after_commit and (self._records or self._committing):
                self._after.append(effect)
            else:
                self._do(effect)

    def persist(self, records: list[Record], then: Callable[[], None]) -> None:
        """Makes records durable that the core knows nothing of, then calls back."""
        self._records.extend(records)
        self._after.append(then)
        self._work.set()

    def _do(self, effect: fx.Effect) -> None:
        if isinstance(effect, fx.Run):
            acks = self._acks.pop(effect.worker, [])
            for message in run_messages(effect, acks):
                self.send_to_worker(effect.worker, message)
        elif isinstance(effect, fx.Acknowledge):
            self._acknowledge(effect.worker, effect.numbers)
        elif isinstance(effect, fx.Welcome):
            self.send_to_worker(
                effect.worker,
                work.Welcome(
                    incarnation=effect.incarnation,
                    greeting=effect.greeting,
                    heartbeat_seconds=effect.heartbeat_seconds,
                    kill=effect.kill,
                ),
            )
        elif isinstance(effect, fx.Kill):
            self.send_to_worker(effect.worker, work.Kill(numbers=effect.numbers))
        elif isinstance(effect, fx.Recall):
            self.send_to_worker(effect.worker, work.Recall(numbers=effect.numbers))
        elif isinstance(effect, fx.AskWho):
            self.send_to_worker(effect.worker, work.Who())
        elif isinstance(effect, fx.SetHeartbeat):
            self.send_to_worker(
                effect.worker, work.SetHeartbeat(heartbeat_seconds=effect.heartbeat_seconds)
            )
        elif isinstance(effect, fx.Feed):
            self.handle(msgspec.structs.replace(effect.event, at=self.now()))
        elif isinstance(effect, fx.Answer | fx.TasksEnded | fx.JobEnded):
            self._tell(effect)
        elif isinstance(effect, fx.Note):
            log.log(logging.WARNING if effect.level == "warning" else logging.INFO, effect.text)
        else:
            raise TypeError(f"nobody does {type(effect).__name__}")

    def listen(self, kind: type[E], listener: Callable[[E], None]) -> None:
        """Has a listener called with each effect of a kind that is for whoever wants to know."""
        self._listeners.setdefault(kind, []).append(listener)

    def _tell(self, effect: fx.Effect) -> None:
        for listener in self._listeners.get(type(effect), ()):
            listener(effect)

    def send_to_worker(self, worker: str, message: work.Message) -> None:
        """Sends a worker a message, as the pool."""
        text = codec.encode(message)
        self.stanzas.sent(type(message), len(text))
        self.session.send(text, worker, self._sender)

    def _acknowledge(self, worker: str, numbers: list[int]) -> None:
        """Acknowledgements travel with the next attempts for that worker, or on their own soon."""
        known = self.pool.workers.get(worker)
        if known is not None and known.leaving:
            self.send_to_worker(worker, work.Ack(numbers=[*self._acks.pop(worker, []), *numbers]))
            return
        self._acks.setdefault(worker, []).extend(numbers)
        if self._ack_timer is None:
            self._ack_timer = self._loop.call_later(ACK_SECONDS, self._send_acks)

    def acknowledge_now(self, worker: str) -> None:
        """Sends a worker the acknowledgements that wait for company."""
        numbers = self._acks.pop(worker, None)
        if numbers:
            self.send_to_worker(worker, work.Ack(numbers=numbers))

    def _send_acks(self) -> None:
        self._ack_timer = None
        acks, self._acks = self._acks, {}
        for worker, numbers in acks.items():
            self.send_to_worker(worker, work.Ack(numbers=numbers))

    # -- durability --------------------------------------------------------------------------------

    async def _commit_forever(self) -> None:
        try:
            await self._commit_batches()
        except KestrelError as error:
            self.give_up(error)
        except Exception as error:
            log.exception("a commit failed in a way that should not exist")
            self.give_up(KestrelError("the store failed", cause=repr(error)))

    def give_up(self, error: KestrelError) -> None:
        """Ends the manager: going on would break what was promised, or help nobody."""
        if not self.broken.done():
            self.broken.set_result(error)

    async def _commit_batches(self) -> None:
        while True:
            await self._work.wait()
            pause = self._pace.pause_seconds(self._loop.time())
            if pause:
                await asyncio.sleep(pause)
            self._work.clear()
            records, self._records = self._records, []
            after, self._after = self._after, []
            self._committing = True
            await self._commit(records, after)
            self._committing = False
            for effect in after:
                if isinstance(effect, fx.Effect):
                    self._do(effect)
                else:
                    effect()
            if self._after and not self._records:
                # What came meanwhile depended on this commit only.
                self._work.set()

    async def _commit(
        self, records: list[Record], after: list[fx.Effect | Callable[[], None]]
    ) -> None:
        while records:
            started = self._loop.time()
            try:
                await self.store.commit(records)
            except StoreFull as error:
                if not self.store_error:
                    log.error("%s (%s); trying again", error.message, error.cause)
                self.store_error = (
                    f"{error.message}: {error.cause}" if error.cause else error.message
                )
                for waiting in (after, self._after):
                    self._answer_in_vain(waiting)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if self.store_error:
                    log.warning("the store can be written again")
                self.store_error = ""
                self.commit_times.observe(self._loop.time() - started)
                return

    def _answer_in_vain(self, after: list[fx.Effect | Callable[[], None]]) -> None:
        """Users need not wait for a full disk: they hear of it, and the rest stays in order."""
        for effect in list(after):
            if isinstance(effect, fx.Answer):
                after.remove(effect)
                self._tell(
                    fx.Answer(
                        request=effect.request,
                        error=StoreFull.code,
                        message=f"the manager cannot store this now ({self.store_error})",
                        hint="it keeps trying; free space, then see `kestrelctl job list`",
                    )
                )

    async def close(self) -> None:
        """Waits until what was decided is durable, then stops."""
        for _ in range(50):
            if not (self._records or self._committing or self._after):
                break
            await asyncio.sleep(0.02)
        self._send_acks()
        if self._timer is not None:
            self._timer.cancel()
        self._commits.cancel()
