"""The pool's answers to users. `docs/protocol.md` shows one of each."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.model.end_reason import NO_REASON, ReasonText
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import StageRun
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.pool_moment import PoolMoment, PoolMomentToCome
from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.model.worker.clause_count import ClauseCount
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.errors import BY_CODE, KestrelError
from kestrelctl.protocol.channels import ChannelAnswer
from kestrelctl.protocol.commands import CommandAnswer
from kestrelctl.protocol.properties import PropertyList, ToldReading
from kestrelctl.protocol.request import Reply as Reply
from kestrelctl.protocol.triggers import TriggerAnswer
from kestrelctl.protocol.views import Assets as Assets
from kestrelctl.protocol.views import (
    AssetView,
    CheckpointView,
    FlockView,
    FollowedLog,
    GroupView,
    NeighbourAnswer,
    NeighbourView,
    OutputPage,
    QuarantineView,
    SaturatedClass,
    StageSum,
    TaskOutput,
    UnmetShape,
    UserView,
)
from kestrelctl.protocol.views import Policies as Policies


class UserLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of a user by attempts whose results became known on some days.

    Attributes:
        user: the user, or the group if that was asked; then it is empty for users who are in none.
        tasks: how many of the attempts ended their task.
        memory_byte_seconds: the peak of memory times the run time, of attempts whose memory is
            known; None if it is known of none.
        peak_bytes: the most that an attempt took; None if it is known of none.
        stored_bytes: what tasks have in the file share now, whenever they put it there.
        max_stored_bytes: the most of that for a user; None for any number.
        queued_bytes: how large the jobs that have not ended are together, as encoded.
        max_queued_bytes: the most of that for a user; None for any size.
    """

    user: str
    attempts: int = 0
    tasks: int = 0
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    wait_seconds: float = 0.0
    memory_byte_seconds: float | None = None
    peak_bytes: int | None = None
    stored_bytes: int = 0
    max_stored_bytes: int | None = None
    queued_bytes: int = 0
    max_queued_bytes: int | None = None


class UsedByUsers(Reply, frozen=True, kw_only=True, tag="user_usage"):
    """A page of users.

    Attributes:
        since: the beginning of the first day that counts, seconds since the epoch.
        after: asks for the next page; None if this was the last.
    """

    since: float
    users: list[UserLine]
    after: str | None = None


class GraphJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job of several that are submitted as one.

    Attributes:
        after: the jobs among these that it waits for, by their places, from 0; all come before it.
            Jobs that are there already are in the `after` of its spec.
        after_each: the place of the job whose tasks its tasks wait for, one for one; None for none.
    """

    spec: JobSpec
    after: tuple[After, ...] = ()
    after_each: int | None = None


class GraphSubmitted(Reply, frozen=True, kw_only=True, tag="graph_submitted"):
    """All of these jobs are durable.

    Attributes:
        job_id: that of the first; those of the others follow, in the order in which they were sent.
        jobs: how many.
        tasks: how many all of them have.
        repeated: an earlier submission with the same key has made them.
    """

    job_id: int
    jobs: int
    tasks: int
    repeated: bool = False


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a drawing.

    Attributes:
        name: its name, or the beginning of its command if it has none.
        state: as in `JobView`; `waiting` for an active one that waits for others.
        ended: tasks with a final state.
    """

    job_id: int
    name: str
    state: str
    tasks: int = 1
    ended: int = 0


class GraphEdge(msgspec.Struct, frozen=True, array_like=True):
    """A job, and others with ids in a row that it waits for, or did.

    Attributes:
        ending: how they must end: `ok`, `ended` or `failed`; or `each`, for a job whose tasks wait
            for the tasks of another, one for one.
    """

    child: int
    first: int
    last: int
    ending: str


class JobGraph(Reply, frozen=True, kw_only=True, tag="graph"):
    """Jobs, with all that they wait for and all that wait for them, directly or not.

    Attributes:
        nodes: in the order of their ids: parents before their children.
        edges: those between them; a range may name jobs that are forgotten.
        more: whether some jobs are left out, because they are too many.
    """

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    more: bool = False


class EventPage(Reply, frozen=True, kw_only=True, tag="events"):
    """A page of the events of workers, in order.

    Attributes:
        after: the number after which the next page starts.
        more: whether the next page may have anything now.
    """

    events: list[MembershipEvent]
    after: int
    more: bool = False


class WorkerGroupView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of workers, and how many of the present workers are in it."""

    group: WorkerGroup
    workers: int = 0


class WorkerGroupList(Reply, frozen=True, kw_only=True, tag="worker_groups"):
    """All groups of workers, by name."""

    groups: list[WorkerGroupView]


MemberAnswer: TypeAlias = EventPage | WorkerGroupList


class EnvironmentView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One environment.

    Attributes:
        phase: `starting`, `ready` or `stopping`.
        since: when it came into that phase, in seconds since the epoch.
        idle_seconds: for how long it has had nothing to do; None while it has something.
        worker: the name of its worker; for a node of something else, the name of that node.
        draining: whether its worker gets nothing new; it is stopped when that has nothing left.
        makes_room_for: the class for which it drains; empty if somebody has asked for that.
    """

    number: int
    of: str
    host: str
    phase: str
    since: PoolMoment
    idle_seconds: float | None = None
    worker: str
    asked_for: bool = False
    draining: bool = False
    makes_room_for: str = ""


class StartFailureView(msgspec.Struct, frozen=True, kw_only=True):
    """Starts that have failed on a host, the latest ones in a row.

    Attributes:
        at, next_try_at: seconds since the epoch.
    """

    host: str
    times: int
    at: PoolMoment
    next_try_at: PoolMomentToCome
    why: str


class EnvironmentHostView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker whose machine makes environments, and a class.

    Attributes:
        free: what it has free, in natural units.
        why_not: why none of the class is started there now; empty if one could be.
    """

    host: str
    free: dict[str, float]
    why_not: str = ""


class EnvironmentClassView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A class of environments.

    Attributes:
        assets: what each has, in natural units.
        waiting: tasks that wait for a worker and that it could run.
        obstacle: why no more are started: `not-needed`, `maximum`, `no-host`, `no-room`, `failed`.
        runs: what each starts instead of a worker, as a command line; empty for a worker.
    """

    name: str
    kind: str
    tags: tuple[str, ...] = ()
    assets: dict[str, float]
    minimum: int
    maximum: int
    start_seconds: float
    idle_seconds: float
    waiting: int
    obstacle: str
    hosts: list[EnvironmentHostView] = []
    failures: list[StartFailureView] = []
    runs: str = ""


class EnvironmentList(Reply, frozen=True, kw_only=True, tag="environments"):
    """All classes, and all environments."""

    classes: list[EnvironmentClassView]
    environments: list[EnvironmentView] = []


class FlockStatus(Reply, frozen=True, kw_only=True, tag="flock"):
    """The standing of the pool in its flock."""

    flock: FlockView


class Neighbours(Reply, frozen=True, kw_only=True, tag="flock_pools"):
    """A page of the pools that this one knows, by domain.

    Attributes:
        after: asks for the next page; None if this was the last.
    """

    pools: list[NeighbourView]
    after: str | None = None


class FlockPong(Reply, frozen=True, kw_only=True, tag="flock_pong"):
    """Another pool's manager has answered.

    Attributes:
        seconds: how long that took.
    """

    pool: str
    seconds: float


class FlockRules(Reply, frozen=True, kw_only=True, tag="flock_rules"):
    """All rules on lending and borrowing, in the order in which they are asked.

    Attributes:
        rest: for `lend` and `borrow`, whether it is allowed where no rule fits.
    """

    rules: list[FlockRule]
    rest: dict[str, bool]


FlockAnswer: TypeAlias = FlockStatus | Neighbours | FlockPong | FlockRules


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A job in an overview; an array, because it travels every second."""

    job_id: int
    name: str  #: its name, or the beginning of its command; empty if it is not for this user
    owner: str
    state: str  #: active, held, cancelling, done, failed or cancelled
    tasks: int
    submitted_at: PoolMoment
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    ended_at: PoolMoment | None = None
    guest_of: str = ""  #: the domain of the pool whose guest it is; empty for none


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A worker in an overview.

    Attributes:
        failures: fast failures in a row.
        since: when it went away, if it is offline.
        until: the end of its quarantine.
    """

    worker: str
    state: str
    running: int = 0
    queued: int = 0
    done: int = 0
    failed: int = 0
    failures: int = 0
    since: PoolMoment | None = None
    until: PoolMomentToCome | None = None


class Overview(Reply, frozen=True, kw_only=True, tag="overview"):
    """A pool at a glance.

    Attributes:
        pool: its domain.
        at: the moment, by the manager's clock.
        workers: how many are in each state.
        capacity, free: those of the workers that are online, in natural units: processors, bytes.
        waiting: tasks that no worker has, by reason.
        running: tasks that run.
        queued: tasks that wait at a worker behind others.
        totals: since the manager started: they begin anew with each `epoch`.
        jobs: those with running tasks first, then by priority and age.
        ended: the jobs that ended last, newest first.
        notable: workers that are not well, then the busiest.
    """

    pool: str
    at: PoolMoment
    version: str
    epoch: int
    up_seconds: float
    workers: dict[str, int]
    capacity: dict[str, float]
    free: dict[str, float]
    waiting: dict[str, int]
    running: int
    queued: int
    totals: dict[str, int]
    jobs_active: int
    jobs: list[JobLine]
    ended: list[JobLine]
    notable: list[WorkerLine]
    store_error: str = ""
    store_error_since: PoolMoment | None = None


class Failed(Reply, frozen=True, kw_only=True, tag="error"):
    """The request was refused or failed; `code` is one of those in `docs/exit-codes.md`."""

    code: str
    message: str
    cause: str = ""
    hint: str = ""

    def error(self) -> KestrelError:
        """Returns it as the error of its code."""
        kind = BY_CODE.get(self.code, KestrelError)
        return kind(self.message, cause=self.cause or None, hint=self.hint or None)


class Submitted(Reply, frozen=True, kw_only=True, tag="submitted"):
    """The job is durable: nothing but its user can lose it now.

    Attributes:
        repeated: an earlier submission with the same key has made it.
        hopeless: why its tasks wait, if that was asked for and nothing could ever run them.
    """

    job_id: int
    tasks: int
    repeated: bool = False
    hopeless: JobExplanation | None = None


class SubmittedEach(Reply, frozen=True, kw_only=True, tag="submitted_each"):
    """The answers to several jobs, in the order in which these were sent."""

    answers: list[Submitted | Failed]


class Changed(Reply, frozen=True, kw_only=True, tag="changed"):
    """The changes by a request: job ids or worker addresses, and how many tasks they concern.

    Attributes:
        kept: how many jobs that were meant were left as they are. Jobs to be cancelled have ended;
            jobs to be forgotten have not; jobs to be held or released were so before, or are not
            active.
        left: how many are still to be done, because one answer cannot name them: ask again.
        missing: how many ids in ranges belong to no job.
    """

    what: list[str]
    tasks: int = 0
    kept: int = 0
    left: int = 0
    missing: int = 0


class RunningUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of tasks that have run for a while and still run, as their workers last said.

    Attributes:
        tasks: how many these are.
        wall_seconds, cpu_seconds, memory_bytes: the sums of all tasks; memory as it was then.
        since: the moment of the oldest of these reports, in seconds since the epoch.
    """

    tasks: int
    wall_seconds: float
    cpu_seconds: float
    memory_bytes: int
    since: PoolMoment


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as users see it. `waiting + running + done + failed + lost + cancelled = tasks`.

    For another user's job the name is empty, the spec says only what it asks of the pool, and a
    hold has no reason, unless the pool shares jobs. A job that is shown whole always has a command.

    Attributes:
        state: active, cancelling, done, failed or cancelled.
        spec: the job as submitted, cut where it is long: without items, inputs and, unless
            `details` were asked for and there is room, variables and cleanup. `ids` stands for its
            ranges but the first.
        ids: those of all tasks, as `--array` takes them.
        resumed: how many attempts were begun from a checkpoint.
        stopped_by: `deadline`, `failed member` or `failed tasks` if that stopped it.
        hold: set while nothing more of it is handed out.
        dispatch_p50_seconds, dispatch_p99_seconds: what dispatch added to a task: from hand-out to
            report, less queue and run time.
        inputs: only with `details`: what its tasks find in their scratch directories, by name.
        stdin: the same for the file that they read.
        stage_sums: only with `details`: how its stages went, and the command.
        attempts, cpu_seconds, wall_seconds, wait_seconds: only with `details` or `used`: the sums
            of its attempts that have results; the wait of a task is from the submission to its last
            start.
        memory_byte_seconds, peak_bytes: the peak of memory times the run time, and the most that an
            attempt took, of those whose memory is known; None if it is known of none.
        spread: only with `details`: p50, p90, p99 and the most of each ended task's `wait_seconds`,
            `wall_seconds`, `cpu_seconds` and `peak_bytes`. Those of memory are left out if it is
            known of no task.
        spread_tasks, spread_memory_tasks: how many tasks these cover, and those of memory.
        sampled: whether these are a sample.
        running_use: only with `details`.
    """

    job_id: int
    name: str
    owner: str
    state: str
    tasks: int
    submitted_at: PoolMoment
    ended_at: PoolMoment | None = None
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    spec: JobSpec = msgspec.field(default_factory=lambda: JobSpec(program=Program(argv=())))
    ids: str = ""
    resumed: int = 0
    stopped_by: str = ""
    hold: Hold | None = None
    mean_seconds: float | None = None
    dispatch_p50_seconds: float | None = None
    dispatch_p99_seconds: float | None = None
    inputs: list[str] | None = None
    stdin: str = ""
    stage_sums: list[StageSum] = []
    attempts: int | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    wait_seconds: float | None = None
    memory_byte_seconds: float | None = None
    peak_bytes: int | None = None
    spread: dict[str, list[float]] = {}
    spread_tasks: int = 0
    spread_memory_tasks: int = 0
    sampled: bool = False
    running_use: RunningUse | None = None

    @property
    def whole(self) -> bool:
        """Whether the user sees all of it, because it is his own or the pool shares jobs."""
        return bool(self.spec.program.argv)

    @property
    def guest_of(self) -> str:
        """The domain of the pool whose guest it is; empty for none."""
        return self.spec.guest_of

    @property
    def deadline_at(self) -> float | None:
        """The moment when what has not ended is stopped, in seconds since the epoch; or None."""
        return self.spec.deadline(self.submitted_at)


class Jobs(Reply, frozen=True, kw_only=True, tag="jobs"):
    """A page of jobs.

    Attributes:
        before: asks for the next page, which has older ones; None if this was the last.
        total: how many there are on all pages; only the first page says so.
    """

    jobs: list[JobView]
    before: int | None = None
    total: int | None = None


class Ended(Reply, frozen=True, kw_only=True, tag="ended"):
    """A watched job has ended, durably."""

    job: JobView


class TaskView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A task as users see it; an array, because pages of a thousand travel.

    For a task that runs, `wall_seconds` is until now; processor time and `memory_bytes` are what
    its worker said at `said_at`, if it has run for a while. `peak_bytes` is None for a task that
    ended before its memory was looked at.

    Attributes:
        wait_seconds: from the submission of the job to the start of its last attempt; for a task
            that waits, until now.
        item: its item, if the job has items and that was asked for; a long one ends with an
            ellipsis.
    """

    index: int
    task_id: int
    state: TaskState
    worker: str = ""
    exit_code: int | None = None
    signal: int = 0
    reason: ReasonText = NO_REASON
    failures: int = 0
    losses: int = 0
    started_at: PoolMoment | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    wait_seconds: float | None = None
    stdout_bytes: int = 0  #: what it wrote in all, whoever has it
    stderr_bytes: int = 0
    memory_bytes: int | None = None  #: without the page cache
    said_at: PoolMoment | None = None
    output_files: int = 0  #: files that it left and its job asked for
    outputs_bytes: int = 0  #: what they take together
    logs_stored: bool = False  #: what it printed is in the file share, as far as it is long
    stage: str = ""  #: that of a task that runs, as its worker last said
    stages: tuple[StageRun, ...] = ()  #: how each went, if its job has stages
    checkpoint: CheckpointView | None = None
    item: str | None = None


class Tasks(Reply, frozen=True, kw_only=True, tag="tasks"):
    """A page of tasks; `after` asks for the next one, None if this was the last.

    Attributes:
        stages: those that the job has beside its command.
    """

    tasks: list[TaskView]
    after: int | None = None
    stages: list[str] = []


class Log(Reply, frozen=True, kw_only=True, tag="log"):
    """A piece of output.

    Attributes:
        job_id: the job that it is of; `name` is that job's.
        data: base64 in JSON.
        next_offset: where the next piece starts; None at the end.
        skipped_bytes: how much before this piece cannot be had.
        cut_bytes: how much after the last piece was never kept.
        why_missing: why that is so.
        stored: where all of it is in the file share, if that was asked for; then there is no data.
    """

    data: bytes
    size_bytes: int
    next_offset: int | None = None
    skipped_bytes: int = 0
    cut_bytes: int = 0
    why_missing: str = ""
    stored: StoredFile | None = None
    job_id: int = 0
    name: str = ""
    task_id: int = 0


class LogPage(Reply, frozen=True, kw_only=True, tag="log_page"):
    """A page of outputs; `after` asks for the next one, None if this was the last."""

    outputs: list[TaskOutput]
    after: int | None = None


class Obstacle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An obstacle to running a task: how many workers have it, one of them, and the reasons."""

    workers: int
    example: str
    refusal: Refusal


class JobExplanation(Reply, frozen=True, kw_only=True, tag="explanation"):
    """The reasons why tasks of a job wait.

    Attributes:
        job_reasons: what holds the job back by itself (`max-running`, `backoff` …).
        obstacles: for each group of workers with the same reason; the closest fit first.
        could_run: workers that could take a task of the job at once.
        ever: whether any worker known now could ever run it.
        tasks_ahead: waiting tasks of other jobs at work that come before this one.
        clauses: those of `requirements` and of workers' `start`: how many workers each leaves.
        neighbours: why each pool of the flock that this one knows does not run them.
        environments: classes of environments that are started for such tasks.
        next_start_seconds: how long it is until one of these is tried again, if the latest start
            has failed wherever they can be made; None otherwise.
        gives_way: a worker that could run it as soon as the environments on its machine have gone;
            empty for none.
    """

    job: JobView
    waiting: int
    job_reasons: list[Refusal]
    obstacles: list[Obstacle]
    could_run: int
    ever: bool
    tasks_ahead: int = 0
    clauses: list[ClauseCount] = []
    neighbours: list[NeighbourAnswer] = []
    environments: list[str] = []
    next_start_seconds: float | None = None
    gives_way: str = ""

    @property
    def is_hopeless(self) -> bool:
        """Whether tasks wait for something that nothing known to the pool will bring about."""
        return bool(self.waiting) and not (self.ever or self.environments or self.gives_way)


class StoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """Something that happened to a job or a task, or how it is; an array, because many travel.

    Attributes:
        at: seconds since the epoch. What a worker's clock said is put between the submission and
            the end of the job, because it may be off.
        task_id: None if it happened to the job as a whole.
        what: one of `HAPPENINGS`, or `submitted`, `ended`; or, of a task: `started`, `waiting`,
            `sent`, `queued` (at its worker), `running`.
        number: that of the attempt; 0 if none is meant.
        cause: who or what was behind it; for `ended`, the final state.
    """

    at: PoolMoment
    task_id: int | None
    what: str
    number: int = 0
    worker: str = ""
    cause: str = ""
    detail: str = ""


class Story(Reply, frozen=True, kw_only=True, tag="story"):
    """The story of a job and its tasks, in order of time.

    Attributes:
        more: whether entries were left out.
        items: those of up to 20 of the tasks asked about, by task id, as `TaskView.item`.
    """

    job: JobView
    entries: list[StoryEntry]
    more: bool = False
    items: dict[int, str] = {}


class UnitView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A unit of an indexed asset, as users see it; `free` is from 0 to 1."""

    id: str
    free: float = 0.0
    vendor: str = ""
    model: str = ""
    memory_bytes: int = 0


class RunningTask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A task that runs at a worker. What it uses is known if it has run for a while.

    Attributes:
        sent_at: when it was handed out; 0 if the manager was started since.
        said_at: when the worker said what it uses; None if it has not said so.
        wall_seconds: how long it has run until now; None if that is not known.
        memory_bytes: without the page cache.
    """

    job_id: int
    task_id: int
    sent_at: PoolMoment
    said_at: PoolMoment | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    memory_bytes: int | None = None


class WorkerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker as users see it; `assets` and `free` in natural units: processors, bytes."""

    worker: str
    state: str  #: idle, busy, draining, quarantined, offline or unheard
    assets: dict[str, float] = {}
    free: dict[str, float] = {}
    tags: list[str] = []
    running: int = 0
    queued: int = 0
    done: int = 0
    failed: int = 0
    host: str = ""
    os: str = ""
    arch: str = ""
    version: str = ""
    joined_at: PoolMoment = 0.0
    quarantined_until: PoolMomentToCome | None = None
    quarantined_for: str = ""
    #: When it leaves, by the manager's clock; None if it stays.
    ends_at: PoolMomentToCome | None = None
    offered_cpus: float | None = None  #: what it offers, if less of it counts
    attributes: dict[str, bool | int | float | str] = {}  #: its own ones, for expressions
    start: str = ""  #: an expression that must be true of a job
    units: dict[str, list[UnitView]] = {}
    shared: list[str] = []  #: assets that tasks use together
    #: Assets that `assets` only estimates, with the exit status that says there is no more.
    unknown: dict[str, int] = {}
    #: What runs there, the oldest first, at most a hundred; only if the worker was named.
    runs: list[RunningTask] = []
    groups: list[str] = []  #: groups of workers that it is in; only if the worker was named
    properties: list[ToldReading] = []  #: those of its host, by name; only if the worker was named


class Workers(Reply, frozen=True, kw_only=True, tag="workers"):
    workers: list[WorkerView]
    after: str | None = None


class Enrolled(Reply, frozen=True, kw_only=True, tag="enrolled"):
    """A temporary account, with which one machine may join as a worker, until it expires.

    Attributes:
        expires_at: seconds since the epoch.
    """

    jid: str
    password: str
    expires_at: PoolMomentToCome


class PoolSummary(Reply, frozen=True, kw_only=True, tag="pool"):
    """The pool in numbers. Times in seconds; totals since the manager started.

    Attributes:
        capacity, free: the amounts of each asset at workers that are online, in natural units.
        assets: what the whole pool has.
        quarantined: the workers in quarantine; the first twenty.
        unmet: those with the most tasks first.
        saturated: those with the most workers first.
    """

    version: str
    epoch: int
    up_seconds: float
    workers: dict[str, int]
    capacity: dict[str, float] = {}
    free: dict[str, float] = {}
    jobs_active: int
    tasks_waiting: int
    tasks_running: int
    totals: dict[str, int]
    manager_cpu_seconds: float
    manager_rss_bytes: int
    commits: int
    commit_seconds_mean: float
    store_error: str = ""
    store_error_since: PoolMoment | None = None
    store_notes: list[str] = []
    quarantined: list[QuarantineView] = []
    unmet: list[UnmetShape] = []
    saturated: list[SaturatedClass] = []
    assets: list[AssetView] = []


class Traffic(Reply, frozen=True, kw_only=True, tag="traffic"):
    """Messages of the manager since it started; two of these tell a rate.

    Attributes:
        at: seconds since the epoch, of the manager.
        epoch: which start of the manager this is.
        workers: how many are online.
        running: how many tasks run.
        usage_seconds: how often workers say what tasks that have run so long use; 0 for never.
        messages: (kind, `in` or `out`, how many, bytes of JSON).
    """

    at: PoolMoment
    epoch: int
    workers: int
    running: int = 0
    usage_seconds: float = 0.0
    messages: list[tuple[str, str, int, int]]


class Users(Reply, frozen=True, kw_only=True, tag="users"):
    """A page of users, by name.

    Attributes:
        after: asks for the next page; None if this was the last.
    """

    users: list[UserView]
    after: str | None = None


class Groups(Reply, frozen=True, kw_only=True, tag="groups"):
    """A page of groups, by name; as `Users`."""

    groups: list[GroupView]
    after: str | None = None


AnyAnswer = (
    Failed
    | Submitted
    | SubmittedEach
    | GraphSubmitted
    | JobGraph
    | Changed
    | Jobs
    | Ended
    | Tasks
    | OutputPage
    | Log
    | LogPage
    | FollowedLog
    | JobExplanation
    | Story
    | Workers
    | Enrolled
    | PoolSummary
    | Traffic
    | Overview
    | Policies
    | Assets
    | UsedByUsers
    | Users
    | Groups
    | FlockAnswer
    | EnvironmentList
    | MemberAnswer
    | PropertyList
    | CommandAnswer
    | ChannelAnswer
    | TriggerAnswer
)
