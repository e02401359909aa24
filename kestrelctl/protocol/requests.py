"""Requests of users to the pool. `docs/protocol.md` shows one of each.

`jobs` selects jobs: `last`, `all` (the active ones of the asking user; for `forget`, those that
have ended), `name:GLOB` (the same by name), or ids and ranges like `3,5-9`. An id must be there; a
range may have gaps. Every request carries an `id` that its answer repeats.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from kestrelctl.core.classad.syntax import MAX_CHARACTERS as MAX_EXPRESSION_CHARACTERS
from kestrelctl.core.members.enrollment import DEFAULT_SECONDS
from kestrelctl.core.membership.event import EventQuery
from kestrelctl.core.model.files.byte_limit import ByteLimit
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.hold import MAX_HOLD_REASON_CHARACTERS
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shell_text import numbered
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.names import is_called
from kestrelctl.core.model.records import GroupRecord, PolicyRecord, TokenRecord
from kestrelctl.core.model.result import Count, Seconds, Whole
from kestrelctl.core.model.share_change import GroupChange, ShareChange
from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.policies.policy_text import MAX_CHARACTERS as MAX_POLICY_CHARACTERS
from kestrelctl.protocol.channels import ChannelRequest, OpenChannels
from kestrelctl.protocol.commands import CommandRequest
from kestrelctl.protocol.pools import Domain
from kestrelctl.protocol.properties import ListProperties
from kestrelctl.protocol.request import (
    AdminRequest,
    Among,
    JobRequest,
    JobsRequest,
    RemoveSetting,
    SetSetting,
    UserRequest,
)
from kestrelctl.protocol.request import Request as Request
from kestrelctl.protocol.triggers import TriggerRequest


class AskFlock(UserRequest, frozen=True, kw_only=True, tag="flock_status"):
    """Tell how the pool stands in its flock. Answered by `flock`."""


class ListNeighbours(UserRequest, frozen=True, kw_only=True, tag="flock_pools"):
    """List the pools that this one knows. Answered by `flock_pools`: a page, by domain.

    Attributes:
        after: the domain after which the page starts.
    """

    limit: Count = 200
    after: str = ""


class JoinFlock(AdminRequest, frozen=True, kw_only=True, tag="flock_join"):
    """Join the flock that a pool is in (admins only), now and after each restart.

    Answered by `changed`, once that is durable; `flock_status` tells when it has come to pass.

    Attributes:
        domain: any one pool of it.
    """

    only_admins_may = "change what it does in its flock"

    domain: Domain


class ForgetPool(AdminRequest, frozen=True, kw_only=True, tag="flock_forget"):
    """Stop joining through a pool (admins only). Answered by `changed`, once that is durable.

    A pool that answers stays in the flock. A pool that then knows no other is in none.

    Attributes:
        domain: the pool, as `flock_join` named it.
    """

    only_admins_may = "change what it does in its flock"

    domain: Domain


class LeaveFlock(AdminRequest, frozen=True, kw_only=True, tag="flock_leave"):
    """Leave the flock (admins only). Answered by `changed`, once that is durable.

    What runs for others, and what others run for this pool, may end.
    """

    only_admins_may = "change what it does in its flock"


class PingPool(AdminRequest, frozen=True, kw_only=True, tag="flock_ping"):
    """Tell whether another pool's manager answers, and how soon (admins only).

    Answered by `flock_pong`.
    """

    only_admins_may = "change what it does in its flock"

    domain: Domain


class ListFlockRules(UserRequest, frozen=True, kw_only=True, tag="flock_rules"):
    """List the rules on lending and borrowing. Answered by `flock_rules`."""


class SetFlockRule(SetSetting, frozen=True, kw_only=True, tag="flock_rule_set"):
    """Put a rule on lending or borrowing in force, or replace the one of its name (admins only).

    Answered by `changed`, once it is durable. What runs goes on under the rules that let it pass.
    """

    only_admins_may = "change what it does in its flock"

    rule: FlockRule

    def wanted(self) -> FlockRule:
        return self.rule


class RemoveFlockRule(RemoveSetting, frozen=True, kw_only=True, tag="flock_rule_remove"):
    """Take such a rule out of force (admins only). Answered by `changed`."""

    only_admins_may = "change what it does in its flock"
    kind = FlockRule


FlockRequest: TypeAlias = (
    AskFlock
    | ListNeighbours
    | JoinFlock
    | ForgetPool
    | LeaveFlock
    | PingPool
    | ListFlockRules
    | SetFlockRule
    | RemoveFlockRule
)


class ListEvents(UserRequest, frozen=True, kw_only=True, tag="events"):
    """List the events of workers. Answered by `events`: a page, in order.

    Attributes:
        after: the number after which the page starts; -1 for the latest, so that only later ones
            are listed.
    """

    query: EventQuery = EventQuery()
    after: Whole = 0
    limit: Count = 500


class ListWorkerGroups(UserRequest, frozen=True, kw_only=True, tag="worker_groups"):
    """List the groups of workers. Answered by `worker_groups`."""


class SetWorkerGroup(SetSetting, frozen=True, kw_only=True, tag="worker_group_set"):
    """Make a group of workers, or replace the one of that name (admins only).

    Answered by `changed`; its `tasks` is how many workers are in it now.
    """

    only_admins_may = "change its groups of workers"

    group: WorkerGroup

    def wanted(self) -> WorkerGroup:
        return self.group


class RemoveWorkerGroup(RemoveSetting, frozen=True, kw_only=True, tag="worker_group_remove"):
    """Forget a group of workers (admins only). Answered by `changed`."""

    only_admins_may = "change its groups of workers"
    kind = WorkerGroup


MemberRequest: TypeAlias = ListEvents | ListWorkerGroups | SetWorkerGroup | RemoveWorkerGroup


Name = Annotated[str, msgspec.Meta(max_length=100)]


class ListEnvironments(UserRequest, frozen=True, kw_only=True, tag="environment_list"):
    """List the classes, and the environments of each. Answered by `environments`."""


class StartOneEnvironment(AdminRequest, frozen=True, kw_only=True, tag="environment_start"):
    """Start an environment (admins only); it stays until it is stopped. Answered by `changed`.

    Attributes:
        of: the name of its class.
        host: the worker on whose machine it starts; empty for the one with the most room.
    """

    only_admins_may = "start and stop environments"

    of: Name
    host: Annotated[str, msgspec.Meta(max_length=3_000)] = ""


class StopEnvironments(AdminRequest, frozen=True, kw_only=True, tag="environment_stop"):
    """Stop environments (admins only). Answered by `changed`.

    Attributes:
        numbers: which; those of a class that work still needs are started anew.
    """

    only_admins_may = "start and stop environments"

    numbers: Annotated[list[Count], msgspec.Meta(min_length=1, max_length=1_000)]


EnvironmentRequest: TypeAlias = ListEnvironments | StartOneEnvironment | StopEnvironments


MAX_KEY_CHARACTERS = 200

UsageBy = Literal["user", "group"]


class SubmitJob(UserRequest, frozen=True, kw_only=True, tag="submit"):
    """Run a job. Answered by `submitted` once it is durable.

    Attributes:
        upload: name of lines sent before with `upload_items`, to be the job's items.
        watch: whether to be told when it ends, as after `watch`.
        explain: whether the answer is to say why if nothing could ever run the job.
        key: a word of the client's own for this submission, which makes it safe to send again: a
            submission with a key that the user has used is answered with the job that it made then,
            or is refused if its spec is another. Empty for none: then each submission is a new job.
            The key of a forgotten job is free again.
    """

    spec: JobSpec
    upload: str = ""
    watch: bool = False
    explain: bool = False
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)] = ""


class SubmitLine(UserRequest, frozen=True, kw_only=True, tag="job"):
    """A job as the first Kestrel's job files put it. Answered by `submitted`.

    As then, its owner gets a chat message when it has ended.

    Attributes:
        command: a line for the shell; the id of the task, from 0, becomes its last argument.
        queue: how many tasks.
        cleanup: another line, run after each task, whatever came of it.
        requires: tags that a worker must provide, in a list or with spaces between them.
    """

    command: str
    queue: Count = 1
    cleanup: str = ""
    requires: list[str] | str = []

    def submission(self) -> SubmitJob:
        """Returns the same job as an ordinary submission."""
        requires = self.requires
        spec = JobSpec(
            program=Program(
                argv=numbered(self.command),
                cleanup=numbered(self.cleanup),
                placeholders=Placeholders.ARRAY if self.queue > 1 else Placeholders.NONE,
            ),
            count=self.queue,
            requires=tuple(requires.split() if isinstance(requires, str) else requires),
            notify=Notify.ALWAYS,
        )
        return SubmitJob(id=self.id, spec=spec)


class SubmitJobs(UserRequest, frozen=True, kw_only=True, tag="submit_jobs"):
    """Run several jobs, of which some wait for others: all of them or none. Answered by
    `graph_submitted` once they are durable.

    Attributes:
        upload: name of lines sent before with `upload_items`: a `GraphJob` each, as JSON.
        key: as in `submit`, for all of them; it goes with the first.
    """

    upload: str
    key: Annotated[str, msgspec.Meta(max_length=MAX_KEY_CHARACTERS)] = ""


#: The most jobs that one message submits.
MOST_TOGETHER = 100


class SubmitEach(UserRequest, frozen=True, kw_only=True, tag="submit_each"):
    """Run several jobs, each as if it had come by itself: one may be refused while others are
    taken. Answered by `submitted_each` once all that were taken are durable.

    Attributes:
        jobs: their `explain` is passed over.
    """

    jobs: Annotated[list[SubmitJob], msgspec.Meta(min_length=1, max_length=MOST_TOGETHER)]


class UploadItems(UserRequest, frozen=True, kw_only=True, tag="upload_items"):
    """Lines for a job to come, in pieces that fit into a stanza. Kept for a minute."""

    upload: str
    lines: list[str]


class CancelJobs(JobsRequest, frozen=True, kw_only=True, tag="cancel"):
    """Stop jobs, running tasks included. Answered by `changed`.

    Attributes:
        task_ids: only these tasks, of exactly one job; empty for all.
    """

    among = Among.ACTIVE

    task_ids: list[Whole] = []


class HoldJobs(JobsRequest, frozen=True, kw_only=True, tag="hold"):
    """Hand nothing more of these jobs out; what is under way goes on. Answered by `changed`.

    In ranges, `all` and `name:GLOB`, jobs that are on hold are passed over. One that is named is
    `kept` as it is, with the reason that it has.
    """

    among = Among.UNHELD

    reason: Annotated[str, msgspec.Meta(max_length=MAX_HOLD_REASON_CHARACTERS)] = ""


class ReleaseJobs(JobsRequest, frozen=True, kw_only=True, tag="release"):
    """Let jobs that are on hold go on. Answered by `changed`.

    In ranges, `all` and `name:GLOB`, jobs that are not on hold are passed over. One that is named
    is `kept` as it is.
    """

    among = Among.HELD


class ListJobs(UserRequest, frozen=True, kw_only=True, tag="job_status"):
    """List jobs. Answered by `jobs`: a page, newest last. The first page has the newest.

    Jobs of others that have ended, and that the user may not see whole, are there only if `jobs` or
    `owner` ask for them.

    Attributes:
        jobs: a selection; empty for any.
        owner: only his; empty for everybody's.
        states: only these; empty for any.
        name: only jobs whose name fits this glob, and is for the user to know; empty for any.
        limit: the most on this page; 0 for as many as an answer may hold.
        before: the page ends before the job of this id; None for the first page.
        where: only jobs of which this expression is true; such a page may be empty, and the first
            does not say how many there are.
        details: also what lists leave out, for a job of one's own that is alone in the answer.
        ended_since: only jobs that have ended, at that time or later, in seconds since the epoch.
        used: also what their attempts took.
    """

    jobs: str = ""
    owner: str = ""
    states: list[str] = []
    name: str = ""
    limit: Count = 100
    before: Count | None = None
    details: bool = False
    where: str = ""
    ended_since: Seconds | None = None
    used: bool = False


class ListTasks(JobRequest, frozen=True, kw_only=True, tag="tasks"):
    """List tasks. Answered by `tasks`: a page, in the order of the array.

    Attributes:
        states: only tasks in these states; empty for any.
        after: the index after which the page starts.
        items: whether each task comes with its item.
    """

    shared = True

    states: list[TaskState] = []
    after: Whole = -1
    limit: Count = 1000
    ids: list[Whole] = []
    items: bool = False


class ListOutputs(JobRequest, frozen=True, kw_only=True, tag="outputs"):
    """Tell where the files are that tasks of one's own job left. Answered by `output_page`.

    Attributes:
        after: the index after which the page starts.
        ids: only of these tasks, at most a thousand; empty for all.
    """

    after: Whole = -1
    ids: list[Whole] = []


class Watch(UserRequest, frozen=True, kw_only=True, tag="watch"):
    """Be told when jobs end. Answered by `jobs` at once, then `ended` for each.

    Holds for a minute; ask again to keep it (and to see how far they are).
    """

    jobs: str


class Logs(JobRequest, frozen=True, kw_only=True, tag="logs"):
    """Fetch output of a task, from the manager or from the worker that ran it. Answered by `log`.

    Attributes:
        task_id: may be left out if the job has only one task.
        stored: whether to be told where it is, instead, if all of it is in the file share.
    """

    task_id: Whole | None = None
    stream: str = "stdout"
    offset: Count = 0
    stored: bool = False


class FollowLogs(JobRequest, frozen=True, kw_only=True, tag="follow_logs"):
    """Fetch what a task has written by now. Answered by `followed_log`.

    Attributes:
        attempt: its output is wanted, from `offset` on; 0 for the one that runs, or else ran last.
        besides: an attempt of which all has been read: 0 does not mean that one, unless it runs.
    """

    task_id: Whole
    stream: str = "stdout"
    attempt: Count = 0
    offset: Count = 0
    besides: Count = 0


class AllLogs(JobRequest, frozen=True, kw_only=True, tag="all_logs"):
    """Fetch output of all tasks of a job that have, or may have, written something. Answered by
    `log_page`: as many as fit, in the order of the array.

    Attributes:
        after: the index after which the page starts.
        ids: only of these tasks, at most a thousand; empty for all. Managers before version 0.3
            send that of all.
    """

    stream: str = "stdout"
    after: Whole = -1
    ids: list[Whole] = []


class RetryJobs(JobsRequest, frozen=True, kw_only=True, tag="retry"):
    """Run again the tasks that ended badly. Answered by `changed`."""

    in_part = False

    task_ids: list[Whole] = []


class ScaleJob(JobRequest, frozen=True, kw_only=True, tag="scale"):
    """Keep so many copies of a service running. Answered by `changed`."""

    copies: Count


class ExplainJob(JobRequest, frozen=True, kw_only=True, tag="explain"):
    """Explain why tasks of a job wait. Answered by `explanation`."""

    shared = True


class DrawGraph(JobsRequest, frozen=True, kw_only=True, tag="job_graph"):
    """Show what jobs wait for, and what waits for them. Answered by `graph`."""

    shared = True
    in_part = False


class TellStory(JobRequest, frozen=True, kw_only=True, tag="story"):
    """Tell what happened to a job and its tasks. Answered by `story`.

    Attributes:
        task_ids: the tasks to tell of from beginning to end; empty for the job itself and the
            latest happenings of its tasks. A job with one task is always told with it.
        limit: at most so many entries; those of the job go before those of its tasks, late ones
            before early ones.
    """

    task_ids: list[Whole] = []
    limit: Count = 200


class ForgetJobs(JobsRequest, frozen=True, kw_only=True, tag="forget"):
    """Delete ended jobs and their results. Answered by `changed`.

    In ranges, `all` and `name:GLOB`, jobs that have not ended are kept.
    """

    among = Among.ENDED


class ListWorkers(UserRequest, frozen=True, kw_only=True, tag="workers"):
    """List workers. Answered by `workers`.

    Attributes:
        names: parts of addresses; empty for all.
        where: only workers of which this expression is true; such a page may be empty.
    """

    names: list[str] = []
    limit: Count = 1000
    after: str = ""
    where: str = ""


class DrainWorkers(AdminRequest, frozen=True, kw_only=True, tag="drain"):
    """Give workers nothing new (admins only). Answered by `changed`."""

    only_admins_may = "drain and resume workers"

    names: list[str]


class ResumeWorkers(AdminRequest, frozen=True, kw_only=True, tag="resume"):
    """End a drain or quarantine (admins only). Answered by `changed`."""

    only_admins_may = "drain and resume workers"

    names: list[str]


class ResizeWorker(AdminRequest, frozen=True, kw_only=True, tag="resize"):
    """Have a worker offer more or less, until its process ends (admins only).

    Answered by `workers`, when the worker has done so.
    """

    only_admins_may = "drain and resume workers"

    name: str
    change: AssetChange


class EnrollWorker(AdminRequest, frozen=True, kw_only=True, tag="enroll"):
    """Let a machine join as a worker (admins only). Answered by `enrolled`.

    Attributes:
        name: the name under which it joins; empty to let the machine choose.
        valid_seconds: how long it may take to do so, from a minute to 30 days.
    """

    only_admins_may = "let machines join"

    name: str = ""
    valid_seconds: float = DEFAULT_SECONDS


class RevokeWorkers(AdminRequest, frozen=True, kw_only=True, tag="revoke"):
    """Delete workers' accounts, and so end their sessions (admins only). Answered by `changed`.

    Attributes:
        names: whole names or addresses of accounts; parts of them do not count.
    """

    only_admins_may = "revoke workers"

    names: list[str]


class PoolStatus(UserRequest, frozen=True, kw_only=True, tag="pool_status"):
    """Show the pool in numbers. Answered by `pool`."""


class PoolOverview(UserRequest, frozen=True, kw_only=True, tag="pool_overview"):
    """Show the pool at a glance.

    Answered by `overview`, which is made anew at most once a second however many ask.

    Attributes:
        jobs: at most so many of the active ones.
    """

    jobs: Count = 100


class PoolTraffic(UserRequest, frozen=True, kw_only=True, tag="pool_traffic"):
    """Tell what the manager has received and sent. Answered by `traffic`."""


class SetPolicy(SetSetting, frozen=True, kw_only=True, tag="policy_set"):
    """Put a consumption policy in force, or replace the one of its name (admins only).

    Answered by `changed`, which counts the workers that it is in force for.

    Attributes:
        workers: an expression on a worker's ad, true of those that it is for.
        text: the policy, lines `Name = expression`.
    """

    only_admins_may = "change its policies"

    name: str
    workers: Annotated[str, msgspec.Meta(max_length=MAX_EXPRESSION_CHARACTERS)]
    text: Annotated[str, msgspec.Meta(max_length=MAX_POLICY_CHARACTERS)]

    def wanted(self) -> PolicyRecord:
        return PolicyRecord(self.name, self.workers, self.text)


class RemovePolicy(RemoveSetting, frozen=True, kw_only=True, tag="policy_remove"):
    """Take a consumption policy out of force (admins only). Answered by `changed`."""

    only_admins_may = "change its policies"
    kind = PolicyRecord


class ListPolicies(UserRequest, frozen=True, kw_only=True, tag="policies"):
    """List consumption policies. Answered by `policies`."""


class SetAsset(SetSetting, frozen=True, kw_only=True, tag="asset_set"):
    """Say how many tokens of an asset the whole pool has (admins only). Answered by `changed`."""

    only_admins_may = "change its assets"

    name: str
    total: Count

    def wanted(self) -> TokenRecord:
        return TokenRecord(self.name, self.total)


class RemoveAsset(RemoveSetting, frozen=True, kw_only=True, tag="asset_remove"):
    """Remove an asset from the pool itself (admins only). Answered by `changed`."""

    only_admins_may = "change its assets"
    kind = TokenRecord


class ListAssets(UserRequest, frozen=True, kw_only=True, tag="assets"):
    """List the assets of the whole pool. Answered by `assets`."""


class UserUsage(UserRequest, frozen=True, kw_only=True, tag="user_usage"):
    """Tell what users have used. Answered by `user_usage`.

    A user who is no admin sees only himself, unless the pool shares jobs.

    Attributes:
        user: only this one, by account or by the name before the `@`; empty for everybody. With
            `by` `group`, the name of a group.
        since: seconds since the epoch; the whole day in UTC in which that is counts.
        after: the user after whom the page starts.
        by: `group` adds up what the present members of each group have used, and what users in none
            have used; for whoever sees all users.
    """

    user: str = ""
    since: Seconds
    after: str = ""
    by: UsageBy = "user"


class ListUsers(UserRequest, frozen=True, kw_only=True, tag="users"):
    """Tell what is set for users, and what they run and have used lately. Answered by `users`.

    A user who is no admin sees only himself, unless the pool shares jobs.

    Attributes:
        user: only this one, by account or by the name before the `@`; empty for everybody.
        after: the user after whom the page starts.
    """

    user: str = ""
    after: str = ""


class ChangeUser(AdminRequest, frozen=True, kw_only=True, tag="user_set"):
    """Set something for a user. Answered by `changed`.

    A user who is no admin may set only `mail`, and only for himself.

    Attributes:
        user: his account, or the name before its `@` if that is known and nobody else's; empty for
            the one who asks.
        group: he shares its weight and bounds from now on; empty for none, None to leave that.
        reset_usage: whether what he has used counts no more.
        mail: where he is sent word when his jobs end; empty for nowhere, None to leave that.
        max_stored_bytes: with so much in the file share, no task of his that stores more begins;
            None for any number, `default` for what holds for all.
        max_queued_bytes: how large his jobs that have not ended may be together, as encoded;
            likewise.
    """

    only_admins_may = "set this for users and groups"

    user: str
    change: ShareChange = ShareChange()
    group: str | None = None
    reset_usage: bool = False
    mail: str | None = None
    max_stored_bytes: ByteLimit | UnsetType = UNSET
    max_queued_bytes: ByteLimit | UnsetType = UNSET

    def objection(self, account: str) -> str:
        """Explains why an account may not make it; empty if it sets only its own mail address."""
        if self != ChangeUser(id=self.id, user=self.user, mail=self.mail):
            return AdminRequest.objection(self, account)
        if self.user and not is_called(account, self.user.lower()):
            return "where another user is sent mail is not yours to set"
        return ""


class ListGroups(UserRequest, frozen=True, kw_only=True, tag="groups"):
    """Tell the same about groups of users. Answered by `groups`.

    A user who is no admin sees only the group that he is in, unless the pool shares jobs.

    Attributes:
        group: only this one; empty for all.
    """

    group: str = ""
    after: str = ""


class ChangeGroup(SetSetting, frozen=True, kw_only=True, tag="group_set"):
    """Make a group, or set something for one (admins only). Answered by `changed`."""

    only_admins_may = "set this for users and groups"

    name: str
    change: ShareChange = ShareChange()

    def wanted(self) -> GroupChange:
        return GroupChange(self.name, self.change)


class RemoveGroup(RemoveSetting, frozen=True, kw_only=True, tag="group_remove"):
    """Remove a group that has no members (admins only). Answered by `changed`."""

    only_admins_may = "set this for users and groups"
    kind = GroupRecord


AnyRequest = (
    SubmitJob
    | SubmitLine
    | SubmitJobs
    | SubmitEach
    | UploadItems
    | CancelJobs
    | HoldJobs
    | ReleaseJobs
    | ListJobs
    | ListTasks
    | ListOutputs
    | Watch
    | Logs
    | FollowLogs
    | AllLogs
    | RetryJobs
    | ScaleJob
    | ExplainJob
    | DrawGraph
    | TellStory
    | ForgetJobs
    | ListWorkers
    | DrainWorkers
    | ResumeWorkers
    | ResizeWorker
    | EnrollWorker
    | RevokeWorkers
    | PoolStatus
    | PoolTraffic
    | PoolOverview
    | SetPolicy
    | RemovePolicy
    | ListPolicies
    | SetAsset
    | RemoveAsset
    | ListAssets
    | UserUsage
    | ListUsers
    | ChangeUser
    | ListGroups
    | ChangeGroup
    | RemoveGroup
    | FlockRequest
    | EnvironmentRequest
    | MemberRequest
    | ListProperties
    | CommandRequest
    | ChannelRequest
    | TriggerRequest
)

ENDED_STATES = ("done", "failed", "cancelled")
JOB_STATES = ("active", *ENDED_STATES)

_READING = (
    AskFlock
    | ListNeighbours
    | ListFlockRules
    | ListEvents
    | ListWorkerGroups
    | ListEnvironments
    | ListJobs
    | ListTasks
    | ListOutputs
    | Logs
    | ExplainJob
    | DrawGraph
    | TellStory
    | ListWorkers
    | PoolStatus
    | PoolOverview
    | PoolTraffic
    | ListPolicies
    | ListAssets
    | UserUsage
    | ListUsers
    | ListGroups
    | OpenChannels
)


def may_repeat(request: AnyRequest) -> bool:
    """Whether it does no harm to do a request twice: it only reads, or has a key of its own.

    Uploaded lines of a job can be taken only once: without them, a second time would be refused.
    """
    if isinstance(request, SubmitJob):
        return bool(request.key) and not request.upload
    if isinstance(request, SubmitEach):
        return all(map(may_repeat, request.jobs))
    return isinstance(request, _READING)
