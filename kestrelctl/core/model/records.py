"""The durable records: the rows of the store, as values."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kestrelctl.core.model.end_reason import NO_REASON, ReasonText
from kestrelctl.core.model.files.byte_limit import AS_FOR_ALL, ByteLimit
from kestrelctl.core.model.index_ranges import IndexRange, as_ranges
from kestrelctl.core.model.job.checkpoint import Checkpoint
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.light_spec import Apart
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.setting import Setting, SettingGone
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job. Written when it is submitted, held, released, freed, cancelled and brought back, and
    at its end.

    Attributes:
        spec: whole until it is durable. Later ones are light and change nothing of the stored one,
            but for how many copies a service has.
        key: of its submission; empty if that had none. No two jobs of an owner have the same.
        stopped_by: what stopped it if nobody cancelled it: `deadline`, `failed member`,
            `failed tasks`, `parent`; else empty.
        untold: it has ended, and its owner is still to be told.
        unmailed: it has ended, and its owner is still to be sent a mail.
        hold: who wants nothing of it handed out; None if it is not on hold. Only of an active job.
        freed: its parents have all ended as it wants: it waits for none of them again.
        settled: the final states of parents that were forgotten while it waited.
        resumed: how many attempts were begun from a checkpoint.
    """

    job_id: int
    owner: str
    spec: JobSpec
    submitted_at: float
    key: str = ""
    state: str = "active"  #: active, then done, failed or cancelled
    cancelling: bool = False
    cursor: int = 0  #: how many tasks of the array were ever dispatched
    counts: Counts = msgspec.field(default_factory=Counts)
    ended_at: float | None = None
    untold: bool = False
    unmailed: bool = False
    stopped_by: ReasonText = NO_REASON
    hold: Hold | None = None
    freed: bool = False
    settled: dict[int, str] = {}
    resumed: int = 0


class OwnerTold(msgspec.Struct, frozen=True):
    """A note that the owner of a job was told of its end at `ended_at`, and of no other end.

    Attributes:
        by_mail: whether that was by a mail and not by a chat message.
    """

    job_id: int
    ended_at: float | None
    by_mail: bool = False


class Progress(msgspec.Struct, frozen=True):
    """The progress of a job's array: how far it was dispatched."""

    job_id: int
    cursor: int


class TaskRecord(msgspec.Struct, frozen=True):
    """A task that ended, or that has failures or losses to remember.

    Attributes:
        concluded: attempts up to this number are over. A result of one of them that comes (again)
            after a restart is not counted (again).
        retried_after: a user had the task brought back after this attempt; none up to it, not even
            one that was given up, can end the task any more.
        memory_step: how often it has asked for more memory.
        least_seconds: it is known to take so long at least; 0 if that is not known.
        checkpoint: the one from which its next attempt goes on.
    """

    job_id: int
    index: int
    state: TaskState
    failures: int
    losses: int
    worker: str
    result: Result | None
    concluded: int = 0
    retried_after: int = 0
    memory_step: int = 0
    least_seconds: float = 0.0
    checkpoint: Checkpoint | None = None


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker that joined: whom to ask after a restart, what it offered, and whether it is being
    drained.

    Attributes:
        ad: None if an earlier version stored the worker without it.
    """

    worker: str
    draining: bool = False
    ad: WorkerAd | None = None


class WorkerGone(msgspec.Struct, frozen=True):
    """A worker that left for good."""

    worker: str


class PolicyRecord(Setting, frozen=True):
    """A consumption policy.

    Attributes:
        workers: an expression on a worker's ad: which workers it is for.
        text: its lines.
    """

    workers: str
    text: str


class TokenRecord(Setting, frozen=True):
    """The number of tokens of one sort, the asset of its name, that the whole pool has."""

    total: int


class UserRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a user of the pool, and what he has used lately.

    Attributes:
        name: his account.
        weight: his share of the pool among users who want more than there is.
        group: whose weight he shares with its other members; empty for none.
        max_running: attempts that he may have at workers at once; None for any number.
        max_queued: tasks without a final state that he may have; None for any number.
        limits: thousandths of assets that may be charged for him at once; of others any amount.
        max_stored_bytes: while he has so much in the file share, no task that stores more begins.
        max_queued_bytes: how large his unfinished jobs may be together, as encoded.
        usage: weighted seconds, decayed up to `usage_at`.
        usage_at: in seconds since the epoch.
        mail: where he is sent word of the ends of his jobs; empty for nowhere.
    """

    name: str
    weight: float = 1.0
    group: str = ""
    max_running: int | None = None
    max_queued: int | None = None
    limits: Amounts = {}
    usage: float = 0.0
    usage_at: float = 0.0
    mail: str = ""
    max_stored_bytes: ByteLimit = AS_FOR_ALL
    max_queued_bytes: ByteLimit = AS_FOR_ALL


class UserGone(msgspec.Struct, frozen=True):
    """A user whose usage counts no more, and for whom nothing is set."""

    name: str


class StoredRecord(msgspec.Struct, frozen=True):
    """The bytes that tasks of a user have put into the file share in an hour.

    Attributes:
        owner: his account.
        hour: since the epoch.
        size_bytes: together; 0 when it counts no more.
    """

    owner: str
    hour: int
    size_bytes: int


class GroupRecord(Setting, frozen=True, kw_only=True):
    """The settings of a group of users. Bounds are those of all its members together.

    Attributes:
        weight: its share of the pool, as if it were one user.
        max_running, max_queued, limits: as of a user.
    """

    weight: float = 1.0
    max_running: int | None = None
    max_queued: int | None = None
    limits: Amounts = msgspec.field(default_factory=dict)


class FlockPeer(msgspec.Struct, frozen=True, kw_only=True):
    """Another pool, remembered to find the flock again after a restart.

    Attributes:
        pool: its domain.
        through: an admin wants the pool to be in the flock of this one.
        heard_at: when it was last heard of, in seconds since the epoch.
    """

    pool: str
    through: bool = False
    heard_at: float = 0.0


class FlockPeerGone(msgspec.Struct, frozen=True):
    """A pool that is not to be remembered."""

    pool: str


class JobForgotten(msgspec.Struct, frozen=True):
    """An ended job whose rows are to be deleted."""

    job_id: int


class Swept(msgspec.Struct, frozen=True):
    """A commit without a record of its own, with which more rows of forgotten jobs are deleted."""


#: The most happenings that are kept of one job; after these comes one `dropped`.
MAX_HAPPENINGS = 2_000

#: The values of `Happening.what`. That a job was submitted and how it ended is in its own record.
#:
#: - `cancelled`: the whole job, or a single task of it; by a user, or for the `cause` `deadline`.
#: - `held`: nothing more of the job is handed out, for a reason that `detail` tells; by a user, or
#:   for the `cause` `pool`.
#: - `released`: a user has ended that.
#: - `failed`: an attempt that failed and is retried; `detail` says how it failed. The failure that
#:   ends a task is in the task's record.
#: - `more-memory`: an attempt ran out of memory, and the next one asks for more.
#: - `restarted`: a copy of a service has ended, and is started again; `detail` says how it ended.
#: - `scaled`: a service shall have more or fewer copies.
#: - `lost`: the attempt's worker went away, for a `cause` of `totals.LOSS_CAUSES`. Also the loss
#:   that ends a task: the task's record does not tell when that was.
#: - `found-again`: a loss is taken back, because the attempt survived.
#: - `refused`: the worker had no more of an asset for the attempt; `detail` says of which.
#: - `killed`: the attempt was killed.
#: - `moved`: a copy of a service was stopped where it ran, to be started elsewhere; or a member of
#:   a job that spans workers, to be started again with the others; or a task that goes on from its
#:   latest checkpoint; `detail` says why.
#: - `goes-on`: the attempt has ended to go on later, from the checkpoint that `detail` names.
#: - `resumed`: the attempt was begun from the checkpoint that `detail` names.
#: - `began-anew`: the attempt could not have its checkpoint; `detail` says why.
#: - `recalled`: the pool took the attempt back before it started.
#: - `given-back`: the worker gave the attempt back before it started.
#: - `superseded`: the attempt was stopped because an earlier one of its task had survived.
#: - `retried`: a user had the task brought back after it had ended badly.
#: - `quarantined`: a worker was put in quarantine for what it made of the job's tasks.
#: - `dropped`: the story of the job is full; what follows is only counted.
HAPPENINGS = (
    "cancelled",
    "held",
    "released",
    "failed",
    "more-memory",
    "restarted",
    "scaled",
    "lost",
    "found-again",
    "refused",
    "killed",
    "moved",
    "goes-on",
    "resumed",
    "began-anew",
    "recalled",
    "given-back",
    "superseded",
    "retried",
    "quarantined",
    "dropped",
)


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to a job, or to one of its tasks, and that its result does not tell.

    Attributes:
        index: of the task; -1 if it happened to the job as a whole.
        at: seconds since the epoch.
        what: one of `HAPPENINGS`.
        number: of the attempt; 0 if none is meant.
        worker: where; empty if nowhere.
        cause: who or what was behind it: an address, or a word such as `lease`.
        detail: in words; may be empty.
    """

    job_id: int
    index: int
    at: float
    what: str
    number: int = 0
    worker: str = ""
    cause: str = ""
    detail: str = ""


#: The durable records of the pools by which a flock is found.
FlockRecord = FlockPeer | FlockPeerGone

Record = (
    JobRecord
    | OwnerTold
    | Progress
    | TaskRecord
    | WorkerRecord
    | WorkerGone
    | Setting
    | SettingGone
    | UserRecord
    | UserGone
    | StoredRecord
    | FlockRecord
    | JobForgotten
    | Swept
    | Happening
)


class UnfinishedJob(msgspec.Struct, frozen=True, kw_only=True):
    """An active job as found in the store: its row and what is left below its cursor.

    The record's counts are those of the stored tasks. Its spec may be light.
    """

    record: JobRecord
    unfinished: list[int]  #: indexes below the cursor without a final state
    counters: dict[int, tuple[int, int]]  #: index -> (failures, losses), where not both zero
    concluded: dict[int, int] = {}  #: index -> `TaskRecord.concluded`, where not zero
    retried_after: dict[int, int] = {}  #: the same of `TaskRecord.retried_after`
    memory_steps: dict[int, int] = {}  #: the same of `TaskRecord.memory_step`
    least_seconds: dict[int, float] = {}  #: the same of `TaskRecord.least_seconds`
    checkpoints: dict[int, Checkpoint] = {}  #: the same of `TaskRecord.checkpoint`
    happenings: int = 0  #: how many are stored
    bad: list[IndexRange] = []  #: stored in a final state other than done
    apart: Apart | None = None  #: what the spec lacks; None for nothing


class EndedTasks(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has ended, as far as the tasks of others wait for its tasks.

    Attributes:
        record: with the head of its spec.
        bad: the tasks that have ended otherwise than done, those without a row included.
    """

    record: JobRecord
    bad: list[IndexRange]


def ended_tasks(record: JobRecord, bad: Iterable[tuple[int, str]]) -> EndedTasks:
    """Returns what tasks of other jobs need to know of the tasks of a job that has ended.

    Args:
        bad: (index, state) of those that are stored and not done, ordered by index.
    """
    found = as_ranges(index for index, _ in bad)
    if record.cursor < record.spec.count:
        found.append((record.cursor, record.spec.count - 1))
    return EndedTasks(record=record, bad=found)


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that a manager needs to go on after a restart."""

    epoch: int  #: this start's number; higher than any before
    term: int = 0  #: of the store, higher with each restore: `sealed_epoch.SealedEpoch`
    secret: bytes  #: of the store, `seal.SECRET_BYTES` long: what seals are made with
    next_job_id: int
    jobs: list[UnfinishedJob]
    workers: list[WorkerRecord]
    settings: list[Setting] = []  #: by kind, in the order of the table of kinds, and by name
    users: list[UserRecord] = []
    flock_peers: list[FlockPeer] = []
    stored: list[StoredRecord] = []  #: by user and hour, none of no bytes
    parents: dict[int, str] = {}  #: the final states of those that waiting jobs name
    paired: dict[int, EndedTasks] = {}  #: jobs for whose tasks those of active jobs wait
