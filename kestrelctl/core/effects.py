"""Effects: what a pool wants done. The shell does it, in order.

An effect whose class says `after_commit` waits until every `Persist` before it is durable: that is
how an acknowledgement comes to mean something.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kestrelctl.core.events import JobClosed, JobStored, TasksClosed, WorkerStored
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.records import JobRecord, Record, TaskRecord
from kestrelctl.core.model.setting import Setting
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts

#: (number, job id, index, n, place of the claim)
Span = tuple[int, int, int, int, int]


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """Anything to be done."""

    after_commit: ClassVar[bool] = False


class Announcement(Effect, frozen=True, kw_only=True):
    """Something for whoever listens, told when it is durable (`manager.service.Service.listen`)."""

    after_commit: ClassVar[bool] = True


class SettingChanged(Announcement, frozen=True, kw_only=True):
    """Announces that something of a kind was set or removed."""

    kind: type[Setting]


class Persist(Effect, frozen=True, kw_only=True):
    """Write these records in the next commit."""

    records: list[Record]


class Run(Effect, frozen=True, kw_only=True):
    """Send attempts to a worker. It holds all that the message says, but for what only the store
    has: the items of tasks, and the texts of long programs.

    Attributes:
        spans: (number, job id, index, n, claim): n attempts with consecutive numbers and indexes;
            `claims[claim]` is what each is charged.
        templates: of jobs that the worker does not have yet.
        items: one for each attempt of spans whose job has items, in their order; none until the
            shell has put them in.
        items_of: the jobs that have items.
        programs_of: the jobs of which the programs in `templates` are cut.
        forget: jobs whose template it may forget.
        counts: (number, which attempt of its task it is) of those that are not the first.
        limits: (place of a claim, what its attempts may use) where that is more than they are
            charged.
        checkpoints: (number, the checkpoint it goes on from) of those that do not begin anew.
        hosts: of a job that spans workers, the machines of all its members, in the order of their
            indexes; empty for others.
    """

    worker: str
    spans: list[Span]
    claims: list[Amounts]
    templates: list[Template]
    items: list[str] = []
    items_of: frozenset[int] = frozenset()
    programs_of: frozenset[int] = frozenset()
    forget: list[int]
    counts: list[tuple[int, int]] = []
    limits: list[tuple[int, Amounts]] = []
    hosts: list[str] = []
    checkpoints: list[tuple[int, MadeCheckpoint]] = []


class Kill(Effect, frozen=True, kw_only=True):
    """Tell a worker to kill attempts and report them as killed."""

    worker: str
    numbers: list[int]


class TakeCheckpoints(Effect, frozen=True, kw_only=True):
    """Have a worker store the checkpoints of attempts now.

    Attributes:
        stop: those of `numbers` that are also asked to stop, to go on elsewhere.
    """

    worker: str
    numbers: list[int]
    stop: list[int]


class Recall(Effect, frozen=True, kw_only=True):
    """Ask a worker to return those of these attempts that it has not started."""

    worker: str
    numbers: list[int]


class Welcome(Effect, frozen=True, kw_only=True):
    """Tell a worker that it is in, how often to give a sign of life and to say what tasks use, and
    what to kill.
    """

    worker: str
    incarnation: str
    greeting: int
    heartbeat_seconds: float
    usage_seconds: float = 0.0
    kill: list[int]


class SetHeartbeat(Effect, frozen=True, kw_only=True):
    """Tell a worker how often to give a sign of life from now on."""

    worker: str
    heartbeat_seconds: float


class AskWho(Effect, frozen=True, kw_only=True):
    """Ask a worker to say hello again, with all that it holds."""

    worker: str


class Acknowledge(Effect, frozen=True, kw_only=True):
    """Tell a worker that these results are safe here, so that it may forget them."""

    after_commit: ClassVar[bool] = True
    worker: str
    numbers: list[int]


class Answer(Announcement, frozen=True, kw_only=True):
    """Answer a user's request. An `error` is one of the codes in `kestrelctl.errors`.

    Attributes:
        repeated: it was so before: a submission had made the job, or it was on hold, or free.
    """

    request: str
    job_id: int = 0
    tasks: int = 0
    repeated: bool = False
    error: str | None = None
    message: str = ""
    cause: str = ""
    hint: str = ""


class Feed(Effect, frozen=True, kw_only=True):
    """Hand this event back to the pool, now that what came before it is durable.

    Attributes:
        urgent: whether something that could run waits for that.
    """

    after_commit: ClassVar[bool] = True
    event: JobStored | JobClosed | TasksClosed | WorkerStored
    urgent: bool = False


class TasksEnded(Announcement, frozen=True, kw_only=True):
    """Tasks are in a final state, durably; tell whoever waits for them.

    Attributes:
        records: one for each task that had begun; those that a cancelled job never started have
            none.
    """

    records: list[TaskRecord]


class JobEnded(Announcement, frozen=True, kw_only=True):
    """A job's last task is in a final state, durably; tell whoever waits for it.

    Attributes:
        record: the job, as it is stored now.
        dispatch_seconds: what dispatch added to its latest tasks, ascending.
    """

    record: JobRecord
    dispatch_seconds: list[float]


class NoticesSettled(Announcement, frozen=True, kw_only=True):
    """The fact that owners were told of the ends of their jobs is durable.

    Attributes:
        by_mail: whether they were told by mail, and not by chat.
    """

    by_mail: bool = False


class MemberChanged(Effect, frozen=True, kw_only=True):
    """Something happened to a worker of the pool's own.

    Attributes:
        kind: one of `member_change.MEMBER_KINDS`.
        ad: what it says of itself, or said last.
        reason: why, for people; empty if there is nothing to say.
    """

    at: float
    kind: str
    worker: str
    ad: WorkerAd
    reason: str = ""


class MembersHeard(Effect, frozen=True, kw_only=True):
    """The wait for workers after the manager's start or an outage is over: a worker that is not
    there now has gone meanwhile.

    Attributes:
        there: the workers that are there.
        away: those that are known and are not, with what they said of themselves last.
    """

    at: float
    there: frozenset[str]
    away: dict[str, WorkerAd] = {}


class Note(Effect, frozen=True, kw_only=True):
    """Something an operator should read in the log."""

    level: str  #: info or warning
    text: str
