"""Events: what happens to a pool. Each carries its moment and who or what caused it."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from kestrelctl.core.model.files.byte_limit import ByteLimit
from kestrelctl.core.model.index_ranges import IndexRange
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import EndedTasks, FlockRecord, JobRecord
from kestrelctl.core.model.result import Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.setting import Setting
from kestrelctl.core.model.share_change import GroupChange, ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.use import Use


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Anything that happens.

    Attributes:
        at: seconds since the epoch, from a clock that never goes back.
        cause: who or what is behind it: an address, or a word; the story of a task repeats it.
    """

    at: float
    cause: str = ""


class Submit(Event, frozen=True, kw_only=True):
    """A user hands in a job; `request` names the reply.

    Attributes:
        key: the user's own word for this submission; empty if there is none. A key that comes
            again makes no second job.
        earlier: the job that the store has under this key of this owner.
        ended: the final states of those of its parents that the store knows as the owner's, and as
            ended.
        paired: the same of the job in `JobSpec.after_each`, with its tasks.
    """

    request: str
    owner: str
    spec: JobSpec
    key: str = ""
    earlier: JobRecord | None = None
    ended: dict[int, str] = {}
    paired: dict[int, EndedTasks] = {}


class SubmitGraph(Event, frozen=True, kw_only=True):
    """A user hands in several jobs as one, of which some wait for others.

    Attributes:
        specs: the first has the `graph`. Their `after` names jobs that are there already.
        after: for each, the jobs of `specs` that it waits for, by their places; all come before it.
        after_each: the same of the one whose tasks its tasks wait for; None for none.
        key, earlier, ended, paired: as of `Submit`; the key becomes that of the first job.
    """

    request: str
    owner: str
    specs: list[JobSpec]
    after: list[tuple[After, ...]]
    after_each: list[int | None]
    key: str = ""
    earlier: JobRecord | None = None
    ended: dict[int, str] = {}
    paired: dict[int, EndedTasks] = {}


class JobStored(Event, frozen=True, kw_only=True):
    """A submitted job is durable, so its tasks may run; and so are those that came with it.

    Attributes:
        jobs: how many these are, with ids in a row.
    """

    job_id: int
    jobs: int = 1


class WorkerStored(Event, frozen=True, kw_only=True):
    """It is durable that the pool has a worker, so it may be sent work."""

    worker: str


class JobClosed(Event, frozen=True, kw_only=True):
    """The store's record of a job is final: the job has ended, or is forgotten."""

    job_id: int


class TasksClosed(Event, frozen=True, kw_only=True):
    """The store's record of some tasks of a job is final, and other tasks wait for that.

    Attributes:
        done: those that are done.
        bad: those that have ended otherwise.
    """

    job_id: int
    done: list[IndexRange] = []
    bad: list[IndexRange] = []


class PutSetting(Event, frozen=True, kw_only=True):
    """An admin sets something of a kind that the pool has by name (`core.settings.table`)."""

    request: str
    setting: Setting | GroupChange


class DropSetting(Event, frozen=True, kw_only=True):
    """An admin removes something that was set by name."""

    request: str
    kind: type[Setting]
    name: str


class ChangeFlock(Event, frozen=True, kw_only=True):
    """The pools to find the flock by change.

    Attributes:
        request: whose request to answer; empty for nobody's.
    """

    request: str = ""
    records: tuple[FlockRecord, ...]


class SetUser(Event, frozen=True, kw_only=True):
    """An admin, or the user himself, sets something for a user, whether he was ever seen or not.

    Attributes:
        name: his account.
        group: whose weight he shares from now on; empty for none, None to leave that as it is.
        reset_usage: whether what he has used counts no more.
        mail: where he is sent word of ends of his jobs; empty for nowhere, None to leave that.
        max_stored_bytes: how much he may have in the file share; unset to leave that.
        max_queued_bytes: how large his unfinished jobs may be; unset to leave that.
    """

    request: str
    name: str
    change: ShareChange
    group: str | None = None
    reset_usage: bool = False
    mail: str | None = None
    max_stored_bytes: ByteLimit | UnsetType = UNSET
    max_queued_bytes: ByteLimit | UnsetType = UNSET


class Cancel(Event, frozen=True, kw_only=True):
    """A user wants a job stopped, running tasks included.

    Attributes:
        indexes: only these tasks of it; empty for all.
    """

    request: str
    job_id: int
    indexes: list[int] = []


class PutOnHold(Event, frozen=True, kw_only=True):
    """A user wants no more of a job handed out for now, for a reason in his words."""

    request: str
    by: str
    job_id: int
    reason: str = ""


class Release(Event, frozen=True, kw_only=True):
    """A user wants a job that is on hold to go on."""

    request: str
    job_id: int


class Retry(Event, frozen=True, kw_only=True):
    """A user wants tasks that ended badly to run again.

    Attributes:
        record: the job as stored (its counts included), if it has ended; None for an active one.
        indexes: the tasks with a row, in a final state other than done, with that state.
        rest: whether the job is meant as a whole: the tasks that it never started when it was
            cancelled come back too.
        happenings: how many records the story of an ended job has.
        ended: of an ended job, the final states of those of its parents that have ended.
        bad: of an ended job, the tasks that have ended otherwise than done, those without a row
            included.
        paired: of an ended job, the one whose tasks its tasks wait for, if that has ended.
    """

    request: str
    job_id: int
    record: JobRecord | None
    indexes: list[tuple[int, str]]
    rest: bool = False
    happenings: int = 0
    ended: dict[int, str] = {}
    bad: list[IndexRange] = []
    paired: EndedTasks | None = None


class Forget(Event, frozen=True, kw_only=True):
    """A user wants nothing of a job kept.

    Attributes:
        record: the job as stored.
    """

    request: str
    record: JobRecord


class Expire(Event, frozen=True, kw_only=True):
    """Ended jobs are not to be kept any longer.

    Attributes:
        sweep: rows of forgotten jobs are still there: more of them are to be deleted.
    """

    job_ids: list[int]
    sweep: bool = False


class ScaleService(Event, frozen=True, kw_only=True):
    """A user wants so many copies of a service."""

    request: str
    job_id: int
    copies: int


class OwnersTold(Event, frozen=True, kw_only=True):
    """The server has taken the messages that tell owners of the ends of their jobs.

    Attributes:
        ends: (job id, when it ended) of each.
        by_mail: whether it is the server for mail, and not the one for chat.
    """

    ends: list[tuple[int, float | None]]
    by_mail: bool = False


class Joined(Event, frozen=True, kw_only=True):
    """A worker says hello, with all that it still holds.

    Attributes:
        greeting: the number of this hello of its process; the welcome repeats it.
        said_at: when, by the worker's own clock; None if it does not say.
        holds: (number, job id, index, claim) of every attempt that it has queued, runs or has to
            report: `claims[claim]` is what it charges; a claim of -1 is that of an ended one.
        seals: show that it was handed them.
        stages: (number, name) of those that are in a stage: the name of the stage.
        wants: how many more attempts it asks for; None if it takes what it is sent.
    """

    worker: str
    incarnation: str
    greeting: int = 0
    said_at: float | None = None
    ad: WorkerAd
    holds: list[tuple[int, int, int, int]]
    claims: list[Amounts] = []
    seals: list[Seal] = []
    stages: list[tuple[int, str]] = []
    wants: int | None = None


class Resized(Event, frozen=True, kw_only=True):
    """A worker has more or less than before, while its tasks run."""

    worker: str
    ad: WorkerAd


class PropertiesRead(Event, frozen=True, kw_only=True):
    """The values that were read of a worker's host have changed.

    Attributes:
        properties: all values that are known now, by name.
        changed: the names of those that are new, or have gone.
    """

    worker: str
    properties: dict[str, bool | int | float | str]
    changed: frozenset[str]


class Heard(Event, frozen=True, kw_only=True):
    """A sign of life without other content."""

    worker: str


class Lost(Event, frozen=True, kw_only=True):
    """A worker is gone; `cause` is one of `totals.LOSS_CAUSES`."""

    worker: str


class Bounced(Event, frozen=True, kw_only=True):
    """The server returned a message for this worker: nobody is there."""

    worker: str


class Reported(Event, frozen=True, kw_only=True):
    """A worker reports attempts that ended.

    Attributes:
        seals: show that it was handed them.
    """

    worker: str
    results: list[Result]
    seals: list[Seal] = []


class Using(Event, frozen=True, kw_only=True):
    """A worker says what attempts that run there have used so far."""

    worker: str
    uses: list[Use]


class Staged(Event, frozen=True, kw_only=True):
    """A worker says which stages its running attempts have begun: (number, name) of each."""

    worker: str
    stages: list[tuple[int, str]]


class Checkpointed(Event, frozen=True, kw_only=True):
    """A worker has stored a checkpoint of an attempt that runs there, or could not use one.

    Attributes:
        number: of the attempt.
        made: the checkpoint; None if there is none.
        problem: why the attempt did not go on from the one that it was given, but began anew.
    """

    worker: str
    number: int
    made: MadeCheckpoint | None = None
    problem: str = ""


class Returned(Event, frozen=True, kw_only=True):
    """A worker gives back attempts that it never started."""

    worker: str
    numbers: list[int]


class Wanted(Event, frozen=True, kw_only=True):
    """A worker that pulls asks for so many attempts more than before."""

    worker: str
    attempts: int


class Drain(Event, frozen=True, kw_only=True):
    """A worker shall get no new tasks; `by` says on whose wish."""

    worker: str
    by: str


class Leaving(Event, frozen=True, kw_only=True):
    """A worker is about to stop: it finishes what it runs and takes nothing new."""

    worker: str


class Resume(Event, frozen=True, kw_only=True):
    """A drained or quarantined worker shall get tasks again."""

    worker: str


class Revoked(Event, frozen=True, kw_only=True):
    """A worker's account is gone, and with it the worker, for good; `by` says on whose wish."""

    worker: str
    by: str


class Disconnected(Event, frozen=True, kw_only=True):
    """The manager lost its own connection: nobody's silence counts until it is back."""


class Reconnected(Event, frozen=True, kw_only=True):
    """The manager is connected (again): every known worker is asked what it holds."""


class StoreFailing(Event, frozen=True, kw_only=True):
    """Nothing becomes durable from now on: `why` says what is wrong with the store."""

    why: str


class StoreWell(Event, frozen=True, kw_only=True):
    """The store works (again): what was decided is durable, and so will be what comes."""


class ClockSet(Event, frozen=True, kw_only=True):
    """Somebody has set the clock of the manager's machine.

    Attributes:
        ahead_seconds: how far it is now ahead of the steady clock, which gives `at`.
    """

    ahead_seconds: float


class Tick(Event, frozen=True, kw_only=True):
    """Time has passed."""
