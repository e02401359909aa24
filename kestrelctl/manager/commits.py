"""Group commit: records that come while one commit is under way go into the next.

There is no timer: when a commit is done, what depended on it is released, and the next one begins
with all that has gathered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.effects import Answer, Effect, Feed
from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.core.model.job.task_state import FINAL_STATES, Counts
from kestrelctl.core.model.records import (
    FlockPeer,
    FlockPeerGone,
    JobForgotten,
    JobRecord,
    Progress,
    TaskRecord,
    UserGone,
    UserRecord,
    WorkerGone,
    WorkerRecord,
)
from kestrelctl.core.model.setting import Setting, SettingGone
from kestrelctl.core.pacing.pace import Pace
from kestrelctl.core.triggers.fired import TriggerFired
from kestrelctl.errors import KestrelError, StoreFull
from kestrelctl.store.port import CoreStore, StoreRecord

log = logging.getLogger(__name__)

#: Pause before a failed commit is tried again.
RETRY_SECONDS = 1.0
#: A commit that takes longer counts as one that fails, until it has ended.
STUCK_SECONDS = 10.0
#: With more records than this, those that a later one replaces are not kept while the store fails:
#: a worker that comes and goes makes some each time.
MOST_WAITING_RECORDS = 100_000
#: The time for which a stopping manager waits for its disk, and the time between two looks.
CLOSE_SECONDS = 30.0
CLOSE_LOOK_SECONDS = 0.02
#: Commits in a row that follow each other at once, and their rate under lasting load: an idle pool
#: answers without delay, a busy one pays for fewer disk flushes.
COMMIT_BURST = 20.0
COMMITS_PER_SECOND = 50.0
#: The same for commits that something waits for which could run, or a user while little goes on.
URGENT_COMMITS_PER_SECOND = 200.0
#: More records than these in a commit are not little: then a flush for one user costs others.
FEW_RECORDS = 16
#: The bounds of the histogram of a commit's seconds.
COMMIT_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class GroupCommit:
    """Makes records durable in the order in which they come.

    Args:
        release: called with everything that waited for a commit, in order, when it is durable.
        on_change: called with `store_error` whenever that changes.
        on_full: called with what waits for a commit, as often as one fails because the disk is
            full; what it removes from the list is not released.
        on_broken: called once if the store fails for good: nothing more becomes durable.

    Attributes:
        store_error: why the store cannot be written now; empty if it can.
        seconds: the times that commits took.
    """

    def __init__(
        self,
        store: CoreStore,
        release: Callable[[Effect], None],
        on_change: Callable[[str], None],
        on_full: Callable[[list[Effect]], None],
        on_broken: Callable[[KestrelError], None],
    ) -> None:
        self.store_error = ""
        self.seconds = Histogram(COMMIT_BOUNDS)
        self._store = store
        self._release = release
        self._on_change = on_change
        self._on_full = on_full
        self._on_broken = on_broken
        self._records: list[StoreRecord] = []
        self._under_way: list[StoreRecord] = []
        self._waiting: list[Effect] = []
        self._durable: deque[Effect] = deque()
        self._committing = False
        self._work = asyncio.Event()
        self._urgent = asyncio.Event()
        self._pace = Pace(COMMITS_PER_SECOND, COMMIT_BURST)
        self._urgent_pace = Pace(URGENT_COMMITS_PER_SECOND, COMMIT_BURST)
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run())

    def write(self, records: Sequence[StoreRecord]) -> None:
        """Puts records into the next commit."""
        self._records.extend(records)
        self._work.set()

    def after(self, effect: Effect) -> None:
        """Releases an effect once all that was written so far is durable; at once if it is.

        It does not overtake those that came before it.
        """
        if self._records or self._committing:
            self._waiting.append(effect)
            if isinstance(effect, Feed | Answer) and self._is_urgent(effect):
                self._urgent.set()
        elif self._durable:
            self._durable.append(effect)
        else:
            self._release(effect)

    def _is_urgent(self, effect: Feed | Answer) -> bool:
        """Whether the next commit is not to wait for company on account of what waits for it."""
        if isinstance(effect, Feed):
            return effect.urgent
        return 0 < len(self._records) <= FEW_RECORDS

    @property
    def idle(self) -> bool:
        """Whether everything is durable and released."""
        return not (self._records or self._committing or self._durable)

    async def close(self) -> None:
        """Waits until what was written is durable, but not for a disk that is full."""
        give_up_at = self._loop.time() + CLOSE_SECONDS
        while not (self.idle or self.store_error or self._task.done()):
            if self._loop.time() >= give_up_at:
                break
            await asyncio.sleep(CLOSE_LOOK_SECONDS)
        self._task.cancel()

    async def _run(self) -> None:
        try:
            while True:
                await self._work.wait()
                await self._pause()
                self._work.clear()
                self._urgent.clear()
                await self._commit_all()
        except KestrelError as error:
            self._on_broken(error)
        except Exception as error:
            log.exception("a commit failed in a way that should not exist")
            self._on_broken(KestrelError("the store failed", cause=repr(error)))

    async def _pause(self) -> None:
        """Waits for company, but not for long if the commit is urgent."""
        pause = self._pace.pause_seconds(self._loop.time())
        if not pause:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._urgent.wait()
                self._pace.give_back()
                await asyncio.sleep(self._urgent_pace.pause_seconds(self._loop.time()))

    async def _commit_all(self) -> None:
        records, self._records = self._records, []
        waiting, self._waiting = self._waiting, []
        self._under_way, self._committing = records, True
        durable = await self._commit(records)
        self._under_way, self._committing = [], False
        if not durable:
            self._records = [*records, *self._records]
            if len(self._records) > MOST_WAITING_RECORDS:
                self._records = latest(self._records)
            self._waiting = [*waiting, *self._waiting]
            self._on_full(self._waiting)
            await asyncio.sleep(RETRY_SECONDS)
            self._work.set()
            return
        self._durable.extend(waiting)
        if not self._records:  # what came meanwhile depended on this commit only
            self._durable.extend(self._waiting)
            self._waiting.clear()
        self._says("")
        while self._durable:
            self._release(self._durable.popleft())

    async def _commit(self, records: list[StoreRecord]) -> bool:
        """Commits records; returns whether they are durable; if not, they may be tried again."""
        if not records:
            return True
        started = self._loop.time()
        stuck = self._loop.call_later(
            STUCK_SECONDS, self._says, f"a commit takes longer than {STUCK_SECONDS:g} s"
        )

        def on_delay(why: str) -> None:
            stuck.cancel()  # that says less
            self._says(why)

        try:
            await self._store.commit(records, on_delay)
        except StoreFull as error:
            self._says(error.cause or error.message)
            return False
        finally:
            stuck.cancel()
        self.seconds.observe(self._loop.time() - started)
        return True

    def _says(self, error: str) -> None:
        """Notes the state of the store."""
        before, self.store_error = self.store_error, error
        if error == before:
            return
        if error:
            log.error("the store cannot be written: %s; nothing is handed out", error)
        else:
            log.warning("the store can be written again")
        self._on_change(error)

    @property
    def waiting_records(self) -> int:
        """The number of records that are not durable yet."""
        return len(self._records) + len(self._under_way)

    def unstored(self) -> dict[int, Counts]:
        """Counts, for each job, its ended tasks that are not durable: a walk over what waits."""
        found: dict[int, Counts] = {}
        for record in latest([*self._under_way, *self._records]):
            if isinstance(record, TaskRecord) and record.state in FINAL_STATES:
                counts = found.setdefault(record.job_id, Counts())
                word = record.state.value
                setattr(counts, word, getattr(counts, word) + 1)
        return found


def latest(records: Iterable[StoreRecord]) -> list[StoreRecord]:
    """Drops records that a later one replaces (`store.port.CoreStore`), and keeps the order."""
    kept: dict[Hashable, StoreRecord] = {}
    for place, record in enumerate(records):
        key = _what(record, place)
        kept.pop(key, None)
        kept[key] = record
    return list(kept.values())


def _what(record: StoreRecord, place: int) -> Hashable:
    """Returns what a record is about; a record about the same replaces it."""
    if isinstance(record, TaskRecord):
        return (record.job_id, record.index)
    if isinstance(record, (JobRecord, Progress, JobForgotten)):
        return (type(record), record.job_id)
    if isinstance(record, (WorkerRecord, WorkerGone)):
        return record.worker
    if isinstance(record, Setting):
        return (type(record), record.name)
    if isinstance(record, SettingGone):
        return (record.kind, record.name)
    if isinstance(record, (UserRecord, UserGone)):
        return (UserRecord, record.name)
    if isinstance(record, (FlockPeer, FlockPeerGone)):
        return (FlockPeer, record.pool)
    if isinstance(record, MembershipEvent):  # the last of each kind says where the worker is
        return (MembershipEvent, record.worker, record.kind)
    if isinstance(record, HandlerAwaits):
        return (HandlerAwaits, record.handler, record.told.worker, record.told.event)
    if isinstance(record, HandlerSettled):
        return (HandlerSettled, record.handler)
    if isinstance(record, TriggerFired):
        return (TriggerFired, record.trigger)
    return place
