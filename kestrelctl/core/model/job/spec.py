"""A job as a user submits it: one command template and an array of tasks."""

from __future__ import annotations

import enum

import msgspec

from kestrelctl.core.model.job.after import After, GraphHead, IfParentFails
from kestrelctl.core.model.job.exits import Exits
from kestrelctl.core.model.job.guest import GUEST_PRECEDENCE, GuestOf
from kestrelctl.core.model.job.program import HEAD_CHARACTERS, Program, cut_words
from kestrelctl.core.model.job.task_array import TaskArray

#: The most ranges of parents in the head of a job.
HEAD_RANGES = 100


class OnWorkerLost(enum.StrEnum):
    """The fate of an attempt whose worker went offline."""

    REQUEUE = "requeue"
    WAIT = "wait"


class Notify(enum.StrEnum):
    """The ends of a job of which its owner is told by a chat message."""

    ALWAYS = "always"
    NEVER = "never"
    FAILURES = "failures"

    def wants(self, outcome: str, *, cancelled: bool) -> bool:
        """Whether the owner wants to hear that the job ended so; whoever cancels it knows."""
        if self is Notify.FAILURES:
            return outcome == "failed" and not cancelled
        return self is Notify.ALWAYS


class Begin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A moment in seconds since the epoch, by the manager's clock, or so long after a submission;
    one of them.
    """

    at: float | None = None
    seconds: float | None = None


class JobSpec(TaskArray, frozen=True, kw_only=True, omit_defaults=True):
    """A job as submitted.

    Limits count per task: a task is given up as failed at its `max_failures`th failed attempt, as
    lost at its `max_losses`th lost worker.

    Attributes:
        program: what a worker runs for each task.
        items: one line per task, for `{}` in the command.
        request: how much of each asset a task asks for, in natural units; always some `cpus`.
        requirements: a ClassAd expression that must be true of a worker; empty for none.
        rank: one that comes to a number: workers with a higher one are preferred.
        retry_on, no_retry_on: only failures with such an exit are retried, or only others.
        backoff_seconds, max_backoff_seconds: the first pause before a failed task is tried again,
            and the longest; None for the pool's.
        deadline_at, deadline_seconds: when unfinished tasks are stopped: seconds since the epoch
            by the manager's clock, or after the submission; at most one of them.
        begin: nothing of it starts before that; None for at once.
        service: its tasks are copies that are started again whenever they end, until a cancel.
        time_request_seconds: a task goes only to workers that stay so long; None for any.
        retry_memory_bytes: what the next attempts ask for, one after the other, when one ran out of
            memory; each more than the one before, and the first more than the request's.
        held: it is submitted on hold: its tasks wait for its release.
        after: the jobs that it waits for, its parents, in rising order.
        after_each: the job for whose tasks its tasks wait, each for that of the same index; 0 for
            none.
        if_parent_fails: what becomes of it when one of them has ended otherwise than it wants; or
            of a task of it, when that of `after_each` has.
        graph: of the first of several jobs that were submitted as one; None for others.
        hold_after: after so many failed attempts in a row, whichever tasks they are of, the pool
            puts it on hold; None for never.
        stop_after: when so many of its tasks have failed or are lost for good, the others are
            stopped, as by a cancel; None for never.
        span: how many workers its tasks run on at once, all or none: as many as it has tasks, each
            a member of one program. 1 for tasks that have nothing to do with each other.
        stays: its tasks run on the pool's own workers only, never on those of neighbours.
        guest: whose guest it is; None for a job of the pool's own. No user can set it.
    """

    program: Program
    name: str = ""
    items: tuple[str, ...] | None = None
    request: dict[str, float] = msgspec.field(default_factory=lambda: {"cpus": 1.0})
    requires: tuple[str, ...] = ()
    priority: int = 100
    max_running: int | None = None
    max_failures: int = 1
    max_losses: int = 5
    on_worker_lost: OnWorkerLost = OnWorkerLost.REQUEUE
    notify: Notify = Notify.NEVER
    requirements: str = ""
    rank: str = ""
    retry_on: Exits = ()
    no_retry_on: Exits = ()
    backoff_seconds: float | None = None
    max_backoff_seconds: float | None = None
    begin: Begin | None = None
    service: bool = False
    time_request_seconds: float | None = None
    deadline_at: float | None = None
    deadline_seconds: float | None = None
    retry_memory_bytes: tuple[int, ...] = ()
    span: int = 1
    held: bool = False
    hold_after: int | None = None
    stop_after: int | None = None
    after: tuple[After, ...] = ()
    after_each: int = 0
    if_parent_fails: IfParentFails = IfParentFails.CANCEL
    graph: GraphHead | None = None
    stays: bool = False
    guest: GuestOf | None = None

    @property
    def precedence(self) -> int:
        """Its priority among all jobs, the highest first. Guests come behind every job of the
        pool's own: what priority they have at home says nothing here.
        """
        return self.priority if self.guest is None else GUEST_PRECEDENCE

    @property
    def guest_of(self) -> str:
        """The domain of the pool whose guest it is; empty for none."""
        return self.guest.pool if self.guest else ""

    def deadline(self, submitted_at: float) -> float | None:
        """The moment that stops unfinished tasks, in seconds since the epoch; None for never."""
        if self.deadline_seconds is not None:
            return submitted_at + self.deadline_seconds
        return self.deadline_at

    def begins_at(self, submitted_at: float) -> float | None:
        """The earliest start of its tasks, in seconds since the epoch; None for any time."""
        if self.begin is None:
            return None
        if self.begin.at is not None:
            return self.begin.at
        return submitted_at + max(0.0, self.begin.seconds or 0.0)

    def stores_files(self, *, keep_logs: bool) -> bool:
        """Whether its tasks put something into the file share.

        Args:
            keep_logs: whether the pool keeps what tasks of all jobs print.
        """
        program = self.program
        return bool(program.outputs or program.checkpoints or program.keep_logs or keep_logs)

    def with_more_memory(self, step: int) -> JobSpec:
        """The job with the request of a task that has asked for more memory so many times."""
        return msgspec.structs.replace(
            self, request={**self.request, "memory": float(self.retry_memory_bytes[step - 1])}
        )

    def head(self, characters: int = HEAD_CHARACTERS) -> JobSpec:
        """Returns the part that lists show: some kilobytes, however long its parts are.

        It has no items and no memo of a guest, the head of its program, and long requirements are
        cut. Nothing can be run from it.

        Args:
            characters: how much is kept of what is long.
        """
        return msgspec.structs.replace(
            self,
            program=self.program.head(characters),
            items=None,
            requires=tuple(cut_words(self.requires, characters)),
            requirements=" ".join(cut_words((self.requirements,), characters)),
            rank=" ".join(cut_words((self.rank,), characters)),
            after=self.after[:HEAD_RANGES],
            guest=self.guest and msgspec.structs.replace(self.guest, memo=b""),
        )

    def shows_all(self) -> bool:
        """Whether the command and the requirements of a head are those of the job, uncut."""
        return all(
            sum(len(word) + 1 for word in words) <= HEAD_CHARACTERS
            for words in (self.program.argv, self.requires, (self.requirements,), (self.rank,))
        )
