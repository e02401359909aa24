"""What a user submits: one command template and an array of tasks."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from kestrelctl.core.model.after import After, GraphHead, IfParentFails
from kestrelctl.core.model.exits import Exits
from kestrelctl.core.model.guest import GUEST_PRECEDENCE, GuestOf
from kestrelctl.core.model.job_inputs import Input
from kestrelctl.core.model.parent_files import ParentFiles
from kestrelctl.core.model.placeholders import Placeholders
from kestrelctl.core.model.stage import Stage
from kestrelctl.core.model.task_array import TaskArray
from kestrelctl.core.model.task_environment import TaskEnvironment

#: The longest command, and the longest requirements, in characters, in the head of a job.
HEAD_CHARACTERS = 1_000
#: And the most ranges of parents there.
HEAD_RANGES = 100


class OnWorkerLost(enum.StrEnum):
    """What becomes of an attempt whose worker went offline."""

    REQUEUE = "requeue"
    WAIT = "wait"


class Notify(enum.StrEnum):
    """Of which ends of a job its owner is told by a chat message."""

    ALWAYS = "always"
    NEVER = "never"
    FAILURES = "failures"

    def wants(self, outcome: str, *, cancelled: bool) -> bool:
        """Whether the owner wants to hear that the job ended so; who cancels it knows."""
        if self is Notify.FAILURES:
            return outcome == "failed" and not cancelled
        return self is Notify.ALWAYS


class JobSpec(TaskArray, frozen=True, kw_only=True, omit_defaults=True):
    """A job as submitted.

    Limits count per task: a task is given up as failed at its `max_failures`th failed attempt, as
    lost at its `max_losses`th lost worker.

    Attributes:
        items: one line per task, for `{}` in the command.
        placeholders: how those in its commands are read.
        request: how much of each asset a task asks for, in natural units; always some `cpus`.
        workdir: absolute path of the directory in which tasks start, on the machines of workers
            that allow it (`core.model.workdir`); empty for a scratch directory of each task's own.
        inputs: files that each task finds in its scratch directory.
        parent_files: what tasks of its parents left, and each task finds there, too.
        stdin: the file that each task reads as its standard input; None for an empty one.
        outputs: globs of what tasks leave in their scratch directories and that comes home
            (`core.model.output_globs`).
        output_to: the address to which workers write these instead of into the file share; empty
            for that (`core.model.output_addresses`).
        stages: commands before and after that of the job (`core.model.stage_rules`).
        checkpoints: globs of the files there from which a task goes on in its next attempt.
        checkpoint_seconds: how often these are stored; None for the usual.
        checkpoint_exit: the exit code by which a task says that it goes on later; None for none
            (`core.model.checkpoint_rules`).
        requirements: a ClassAd expression that must be true of a worker; empty for none.
        rank: one that comes to a number: workers with a higher one are preferred.
        success_exits: exit codes that are a success; none named: 0.
        retry_on, no_retry_on: only failures with such an exit are retried, or only others.
        backoff_seconds, max_backoff_seconds: the first pause before a failed task is tried again,
            and the longest; None for the pool's.
        deadline_at, deadline_seconds: when what has not ended is stopped: seconds since the epoch
            by the manager's clock, or after the submission; at most one of them.
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
        span: on so many workers at once its tasks run, all or none: as many as it has tasks, each a
            member of one program. 1 for tasks that have nothing to do with each other.
        join: what a task writes to standard error goes into its standard output.
        keep_logs: what a task prints goes into the file share, as far as its result has not room.
        stop_signal, stop_grace_seconds: what asks a task to end, without `SIG`, and how long before
            it is made to; `core.model.ending_rules` has the defaults.
        environment: inside which its tasks run; None for that of their worker.
        stays: its tasks run on the pool's own workers only, never on those of neighbours.
        guest: whose guest it is; None for a job of the pool's own. No user can set it.
    """

    argv: tuple[str, ...]
    name: str = ""
    items: tuple[str, ...] | None = None
    placeholders: Placeholders = Placeholders.ALWAYS
    env: dict[str, str] = msgspec.field(default_factory=dict)
    cleanup: tuple[str, ...] = ()
    request: dict[str, float] = msgspec.field(default_factory=lambda: {"cpus": 1.0})
    requires: tuple[str, ...] = ()
    priority: int = 100
    max_running: int | None = None
    max_failures: int = 1
    max_losses: int = 5
    time_limit_seconds: float | None = None
    on_worker_lost: OnWorkerLost = OnWorkerLost.REQUEUE
    notify: Notify = Notify.NEVER
    workdir: str = ""
    inputs: tuple[Input, ...] = ()
    parent_files: tuple[ParentFiles, ...] = ()
    stdin: Input | None = None
    outputs: tuple[str, ...] = ()
    output_to: str = ""
    stages: tuple[Stage, ...] = ()
    checkpoints: tuple[str, ...] = ()
    checkpoint_seconds: float | None = None
    checkpoint_exit: int | None = None
    requirements: str = ""
    rank: str = ""
    success_exits: Exits = ()
    retry_on: Exits = ()
    no_retry_on: Exits = ()
    backoff_seconds: float | None = None
    max_backoff_seconds: float | None = None
    service: bool = False
    time_request_seconds: float | None = None
    deadline_at: float | None = None
    deadline_seconds: float | None = None
    retry_memory_bytes: tuple[int, ...] = ()
    stop_signal: str = ""
    stop_grace_seconds: float | None = None
    span: int = 1
    held: bool = False
    hold_after: int | None = None
    stop_after: int | None = None
    join: bool = False
    keep_logs: bool = False
    after: tuple[After, ...] = ()
    after_each: int = 0
    if_parent_fails: IfParentFails = IfParentFails.CANCEL
    graph: GraphHead | None = None
    environment: TaskEnvironment | None = None
    stays: bool = False
    guest: GuestOf | None = None

    @property
    def precedence(self) -> int:
        """Its priority among all jobs, the highest first. Guests come behind every job of the
        pool's own: what priority they have at home says nothing here.
        """
        return self.priority if self.guest is None else GUEST_PRECEDENCE

    def deadline(self, submitted_at: float) -> float | None:
        """When what has not ended is stopped, in seconds since the epoch; None for never."""
        if self.deadline_seconds is not None:
            return submitted_at + self.deadline_seconds
        return self.deadline_at

    def stores_files(self, *, keep_logs: bool) -> bool:
        """Whether its tasks put something into the file share.

        Args:
            keep_logs: whether the pool keeps what tasks of all jobs print.
        """
        return bool(self.outputs or self.checkpoints or self.keep_logs or keep_logs)

    def with_more_memory(self, step: int) -> JobSpec:
        """The job as a task asks that has run out of memory so many times."""
        return msgspec.structs.replace(
            self, request={**self.request, "memory": float(self.retry_memory_bytes[step - 1])}
        )

    def head(self) -> JobSpec:
        """What lists show of the job: some kilobytes, however long its parts are.

        It has no items, inputs, variables and cleanup, no recipe, no memo of a guest; a long
        command, also of a stage, and long requirements are cut. Nothing can be run from it.
        """
        return msgspec.structs.replace(
            self,
            argv=tuple(cut_words(self.argv, HEAD_CHARACTERS)),
            items=None,
            env={},
            inputs=(),
            parent_files=(),
            stdin=None,
            cleanup=(),
            outputs=tuple(cut_words(self.outputs, HEAD_CHARACTERS)),
            stages=tuple(
                msgspec.structs.replace(stage, argv=tuple(cut_words(stage.argv, HEAD_CHARACTERS)))
                for stage in self.stages
            ),
            checkpoints=tuple(cut_words(self.checkpoints, HEAD_CHARACTERS)),
            requires=tuple(cut_words(self.requires, HEAD_CHARACTERS)),
            requirements=" ".join(cut_words((self.requirements,), HEAD_CHARACTERS)),
            rank=" ".join(cut_words((self.rank,), HEAD_CHARACTERS)),
            after=self.after[:HEAD_RANGES],
            environment=self.environment and msgspec.structs.replace(self.environment, recipe=""),
            guest=self.guest and msgspec.structs.replace(self.guest, memo=b""),
        )

    def shows_all(self) -> bool:
        """Whether the command and the requirements of a head are those of the job, uncut."""
        return all(
            sum(len(word) + 1 for word in words) <= HEAD_CHARACTERS
            for words in (self.argv, self.requires, (self.requirements,), (self.rank,))
        )


def cut_words(words: Iterable[str], characters: int) -> list[str]:
    """The first words, with a space after each, up to so many characters; `…` where it is cut."""
    kept: list[str] = []
    for word in words:
        if len(word) >= characters:
            kept.append(word[:characters] + "…")
            break
        kept.append(word)
        characters -= len(word) + 1
    return kept
