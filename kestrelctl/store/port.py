"""The interface of a store for its manager, whatever holds the data, and what is written there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.event_records import EventsDropped
from kestrelctl.core.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.core.model.records import Happening, JobRecord, Record, Snapshot, TaskRecord
from kestrelctl.core.triggers.fired import FiredDropped, TriggerFired
from kestrelctl.core.triggers.recorded_moment import MomentRecorded, MomentsDropped
from kestrelctl.store.edges import Edge
from kestrelctl.store.item_window import ItemWindow
from kestrelctl.store.kept_text import KeptText
from kestrelctl.store.sums import Spread, Used

#: Records of what became of members.
MemberRecord: TypeAlias = MembershipEvent | EventsDropped
#: Records of what the pool does by itself: handlers and triggers.
RuleRecord: TypeAlias = (
    HandlerAwaits | HandlerSettled | TriggerFired | FiredDropped | MomentRecorded | MomentsDropped
)
StoreRecord: TypeAlias = Record | MemberRecord | RuleRecord


T = TypeVar("T")


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a store since it was opened, and its size."""

    commits: int
    commit_seconds: float  #: wall time, of all commits together
    records: int  #: in those commits
    bytes_on_disk: int
    free_bytes: int = 0  #: of these, what is free for new rows


class WhichJobs(TypedDict, total=False):
    """The jobs that are meant, as for `CoreReads.jobs`; what is left out keeps none out."""

    ids: Sequence[int] | None
    states: Sequence[str]
    owner: str | None
    name: str
    ended_since: float | None
    ended_of: str | None


class CoreReads(Protocol):
    """All that the core goes on from, and by which its manager decides, as far as it is durable.

    A method may wait for a disk or a network. On an event loop, ask by `CoreStore.ask`.
    """

    @property
    def damaged(self) -> Mapping[int, str]:
        """Jobs that were found unreadable since `open`, by id, and why."""
        ...

    def jobs(
        self,
        *,
        ids: Sequence[int] | None = None,
        states: Sequence[str] = (),
        owner: str | None = None,
        name: str = "",
        before: int | None = None,
        ended_since: float | None = None,
        ended_of: str | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        """The newest `limit` jobs that fit, newest last, each with the head of its spec.

        Their items, which may be megabytes, are not read: see `JobSpec.head`, and `job` for all.
        Those that cannot be read are left out, and noted in `damaged`. Counts are those of the
        job's last `JobRecord`: of an ended job the final ones.

        Args:
            ids: only these; None for any.
            states: only those in one of these; empty for any.
            owner: only his; None for anybody's.
            name: only those whose name fits this glob; empty for any.
            before: only those with a lower id; None for any.
            ended_since: only those that have ended, then or later; None for any.
            ended_of: only his of those that have ended; None for anybody's.
        """
        ...

    def job_ids(self, **which: Unpack[WhichJobs]) -> list[int]:
        """The ids of all jobs that fit, as for `jobs`, ascending. It reads nothing else of them, so
        one that cannot be read is among them.
        """
        ...

    def count_jobs(self, **which: Unpack[WhichJobs]) -> int:
        """The number of all jobs that fit, as for `job_ids`: however many, none is named."""
        ...

    def untold(self, limit: int) -> list[JobRecord]:
        """The first `limit` jobs whose owners are still to be told, each with the head of its spec.

        Those that cannot be read are left out, and noted in `damaged`.
        """
        ...

    def job(self, job_id: int) -> JobRecord | None:
        """One job with its whole spec; None if there is none.

        Raises:
            KestrelError: it cannot be read.
        """
        ...

    def job_of_key(self, owner: str, key: str) -> JobRecord | None:
        """The job that a submission of this owner with this key has made, with its whole spec.

        Args:
            key: not empty.

        Raises:
            KestrelError: it cannot be read.
        """
        ...

    def tasks(
        self,
        job_id: int,
        *,
        states: Sequence[TaskState] = (),
        after: int = -1,
        limit: int = 1000,
        indexes: Sequence[int] = (),
    ) -> list[TaskRecord]:
        """The first `limit` stored tasks of a job with an index above `after`, ordered by index.

        Args:
            states: only those in one of these; empty for any.
            indexes: only these; empty for any.
        """
        ...

    def edges(
        self, *, ids: Sequence[int] | None = None, above: int = 0, limit: int | None = None
    ) -> list[Edge]:
        """The edges of kept jobs that wait or waited for others, by child and then by parent.

        Args:
            ids: only those in which one of these is the child; None for any.
            above: only those whose child has a higher id.
            limit: the first so many; None for all.
        """
        ...

    def ended_badly(self, job_id: int, indexes: Sequence[int] = ()) -> list[tuple[int, str]]:
        """(index, state) of stored tasks in a final state other than done, ordered by index.

        Args:
            indexes: only these; empty for any.
        """
        ...

    def count_happenings(self, job_id: int) -> int:
        """The number of happenings of a job that are stored; 0 if there is no such job."""
        ...

    def members(self) -> list[str]:
        """The workers that have joined and are not gone, as `MembershipEvent`s say."""
        ...

    def last_member_event(self) -> int:
        """The number of the latest event of a member; 0 if there was none."""
        ...


class Reads(CoreReads, Protocol):
    """Also what people are shown and mailed, what is deleted with time, and what handlers and
    triggers go on from.
    """

    def notes(self) -> list[str]:
        """Notes on the store for whoever runs the manager: what was lost, what is damaged."""
        ...

    def ended_before(self, before: float, *, keep: int = 0, limit: int) -> list[int]:
        """The first `limit` jobs that have ended before that time, the first to end first.

        Jobs whose owners are still to be told, or to be sent a mail, are not among them.

        Args:
            before: seconds since the epoch.
            keep: how many of those that ended last are left out.
        """
        ...

    def has_forgotten(self) -> bool:
        """Whether rows of forgotten jobs are left: some go with each commit."""
        ...

    def unmailed(self, owner: str, limit: int) -> list[JobRecord]:
        """The first `limit` jobs of an owner of which he is still to be sent a mail, each with the
        head of its spec.

        Those that cannot be read are left out, and noted in `damaged`.
        """
        ...

    def unmailed_owners(self) -> list[str]:
        """The owners of all jobs that `unmailed` would list, in order."""
        ...

    def used(self, job_ids: Sequence[int]) -> dict[int, Used]:
        """The usage of these jobs' attempts, by job id; jobs without a result may be missing.

        It reads one row for each job, however many tasks that has.
        """
        ...

    def spread(self, job_id: int) -> Spread:
        """The spread of what the ended tasks of a job took.

        It reads at most `sums.MOST_SAMPLED` rows of tasks: those of larger jobs are a sample.
        """
        ...

    def used_by_owner(self, since_day: int, owner: str | None = None) -> dict[str, Used]:
        """The usage of attempts whose results became durable on that day or later, by owner.

        Forgotten jobs count too.

        Args:
            since_day: as `sums.day_of`.
            owner: only his; None for everybody's.
        """
        ...

    def happenings(
        self, job_id: int, *, indexes: Sequence[int] = (), limit: int = 1000
    ) -> list[Happening]:
        """The latest `limit` happenings of a job that fit, in the order in which they happened.

        Args:
            indexes: only those of these tasks and of the job as a whole; empty for any.
        """
        ...

    def member_events(
        self, *, after: int = 0, since: float = 0.0, limit: int
    ) -> list[MembershipEvent]:
        """The first `limit` events of members that are kept, in order.

        Args:
            after: only those with a higher number.
            since: only those of that moment or later.
        """
        ...

    def awaited(self) -> dict[str, tuple[int, int]]:
        """The first and the last number of what each handler is still to be told, by handler."""
        ...

    def awaits(self, handler: str, *, after: int = 0, limit: int) -> list[HandlerAwaits]:
        """The first `limit` of what a handler is still to be told, in order.

        What cannot be read is left out, and the log says so.

        Args:
            after: only those with a higher number.
        """
        ...

    def fired(
        self, *, trigger: str = "", before: int | None = None, limit: int
    ) -> list[TriggerFired]:
        """The latest `limit` times that triggers fired, in order.

        Args:
            trigger: only of this one; empty for any.
            before: only those with a lower number; None for any.
        """
        ...

    def first_fired(self) -> TriggerFired | None:
        """The first such time that is kept."""
        ...

    def trigger_courses(self) -> dict[str, tuple[float, int]]:
        """The last time that each trigger fired, and how often it has, also beyond what is kept."""
        ...

    def moments_kept(self) -> list[tuple[int, float]]:
        """Number and time of each recorded moment of the pool, in order."""
        ...

    def moments(self, *, after: int, limit: int) -> list[MomentRecorded]:
        """The first `limit` recorded moments with a higher number, in order."""
        ...

    def statistics(self) -> Statistics: ...


class CoreStore(CoreReads, Protocol):
    """All that the core of one pool writes and goes on from, and by which its manager decides.

    Only the manager that opened it changes it. A record replaces what an earlier one said of the
    same job, task or worker; the order within a batch counts. A `Happening` or a `MembershipEvent`
    replaces nothing: each is kept. The caller promises that the first record of a job has its whole
    spec (later ones may have a light one, `core.model.job.light_spec`), that a job's owner, spec,
    key and moment of submission never change, but for how many tasks a service has, that no record
    of a job follows its `JobForgotten`, that job ids are not used twice, and that no two jobs of an
    owner that are not forgotten have the same key.
    """

    def open(self) -> Snapshot:
        """Takes the store for this manager, durably counts the epoch up, returns what it finds.

        Snapshot cursors lie beyond every stored task, so a job has left below its cursor exactly
        what its `unfinished` says, even if the cursor itself had not become durable in time.
        The specs of jobs may be light, and should be: all of them are in memory at once.
        A job that cannot be read is set aside: it is not in the snapshot, but in `damaged`. If
        commits are missing, epoch and job ids go on above all that may have been used.

        Raises:
            AnotherLeads: another manager leads.
            KestrelError: another manager has it, or its directory cannot be used.
            StoreUnusable: it is damaged, or another or a newer program made it.
            StoreFull: it cannot be written.
        """
        ...

    async def commit(
        self, records: Sequence[StoreRecord], on_delay: Callable[[str], None] | None = None
    ) -> None:
        """Makes a batch durable, all of it or nothing; when it returns, it is.

        One at a time: the caller collects what comes up meanwhile for the next call. A cancelled
        commit has ended either way; which way is not said.

        Args:
            on_delay: called with the reason, as soon as one is known, why the commit has to wait.

        Raises:
            StoreFull: nothing of the batch counts, and the same batch may be tried again.
            StoreUnusable: the store is damaged, or another manager has it now; nothing of the
                batch counts.
        """
        ...

    def close(self) -> None:
        """Lets go of the store. A commit under way is finished first."""
        ...

    async def ask(self, question: Callable[[CoreReads], T]) -> T:
        """Returns the answer to a question, for which the event loop does not wait.

        Args:
            question: called with what is durable, perhaps in another thread: it must not touch what
                the event loop changes.

        Raises:
            KestrelError: what is asked for cannot be read.
        """
        ...

    def items(self, job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        """Some items of a job, the one of this index among them; None if it has no such item.

        The future of a store on this machine is done when it is returned. One behind a network
        answers later.

        Raises:
            StoreFull: the future does, if they cannot be read now; it may work later.
            KestrelError: the future does, if they cannot be read at all.
        """
        ...

    def program(self, job_id: int) -> asyncio.Future[Program | None]:
        """The whole program of a job, likewise; None if there is no such job."""
        ...


class Leadership(Protocol):
    """The lead of one of several managers that share a store; the others stand by."""

    @property
    def is_held(self) -> bool:
        """Whether this manager leads at this moment: it must do nothing while it does not."""
        ...

    @property
    def is_lost(self) -> bool:
        """Whether another manager has led since: this one can only stand by again."""
        ...

    async def win(self, problem: Callable[[], str]) -> None:
        """Stands by until `Store.open` may take the store; a store that nobody has, it may at once.

        Args:
            problem: why this manager could not do its work now; empty if it could. It takes nothing
                over while there is a reason.

        Raises:
            KestrelError: the store cannot be used at all.
        """
        ...

    def managers(self) -> list[ManagerSeen]:
        """This manager, and those that stand by."""
        ...

    def close(self) -> None:
        """Lets go, so that another manager can lead at once."""
        ...


class Store(Reads, CoreStore, Protocol):
    """All that is durable of one pool."""

    @property
    def leadership(self) -> Leadership | None:
        """The lead among managers that share it; None of a store that only one machine can have."""
        ...

    def kept_text(self, name: str) -> KeptText:
        """A text that is kept beside the tables, of a name of `kept_text`."""
        ...

    async def ask(self, question: Callable[[Reads], T]) -> T:
        """Returns the answer to a question about all that is durable, as `CoreStore.ask` does."""
        ...


def at_hand(read: Callable[[], T]) -> asyncio.Future[T]:
    """Returns a future that is done: with what is read, or with the error of that."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(read())
    except Exception as error:
        future.set_exception(error)
    return future
