"""All answers of the pool to users. `docs/protocol.md` shows one of each; those about jobs are in
`job_answers`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.manager_seen import ManagerSeen
from kestrelctl.core.model.numbers import PoolMoment, PoolMomentToCome
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.protocol.channels import ChannelAnswer
from kestrelctl.protocol.commands import CommandAnswer
from kestrelctl.protocol.job_answers import (
    AnswerAboutJobs,
    Ended,
    FollowedLog,
    GraphEdge,
    GraphJob,
    GraphNode,
    GraphSubmitted,
    JobExplanation,
    JobGraph,
    JobLine,
    Jobs,
    JobView,
    Log,
    LogPage,
    Obstacle,
    OutputPage,
    RunningUse,
    Story,
    StoryEntry,
    Submitted,
    SubmittedEach,
    Tasks,
    TaskView,
)
from kestrelctl.protocol.properties import PropertyList, ToldReading
from kestrelctl.protocol.request import Changed, Failed, Reply
from kestrelctl.protocol.triggers import TriggerAnswer
from kestrelctl.protocol.views import (
    Assets,
    AssetView,
    FlockView,
    GroupView,
    NeighbourView,
    Policies,
    QuarantineView,
    SaturatedClass,
    UnmetShape,
    UserView,
)


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
        hosts: those where it could be started first; all classes of an answer share five hundred.
        more_hosts: how many others there are.
        failures: the latest one first; all classes of an answer share a hundred.
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
    more_hosts: int = 0
    failures: list[StartFailureView] = []
    runs: str = ""


class EnvironmentList(Reply, frozen=True, kw_only=True, tag="environments"):
    """The classes, and a page of their environments, by number.

    Attributes:
        classes: on the first page alone.
        environments: those of the class that was asked for come with those that make room for it.
        after: asks for the next page; None if this was the last.
    """

    classes: list[EnvironmentClassView]
    environments: list[EnvironmentView] = []
    after: int | None = None


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
        managers: the one that leads, and those that stand by; none if there can be only one.
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
    managers: list[ManagerSeen] = []


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
    | Changed
    | AnswerAboutJobs
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
