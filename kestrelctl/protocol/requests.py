"""All requests of users to the pool. `docs/protocol.md` shows one of each; those about jobs are in
`job_requests`. Every request carries an `id` that its answer repeats.
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
from kestrelctl.core.model.names import is_called
from kestrelctl.core.model.numbers import Count, Seconds, Whole
from kestrelctl.core.model.records import GroupRecord, PolicyRecord, TokenRecord
from kestrelctl.core.model.share_change import GroupChange, ShareChange
from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.policies.policy_text import MAX_CHARACTERS as MAX_POLICY_CHARACTERS
from kestrelctl.protocol.answers import (
    Enrolled,
    EnvironmentList,
    EventPage,
    FlockPong,
    FlockRules,
    FlockStatus,
    Groups,
    Neighbours,
    Overview,
    PoolSummary,
    Traffic,
    UsedByUsers,
    Users,
    WorkerGroupList,
    Workers,
)
from kestrelctl.protocol.channels import ChannelRequest
from kestrelctl.protocol.commands import CommandRequest
from kestrelctl.protocol.job_requests import (
    ENDED_STATES,
    JOB_STATES,
    MOST_TOGETHER,
    AllLogs,
    CancelJobs,
    DrawGraph,
    ExplainJob,
    FollowLogs,
    ForgetJobs,
    HoldJobs,
    ListJobs,
    ListOutputs,
    ListTasks,
    Logs,
    ReleaseJobs,
    RequestAboutJobs,
    RetryJobs,
    ScaleJob,
    SubmitEach,
    SubmitJob,
    SubmitJobs,
    SubmitLine,
    TellStory,
    UploadItems,
    Watch,
)
from kestrelctl.protocol.pools import Domain
from kestrelctl.protocol.properties import ListProperties
from kestrelctl.protocol.request import AdminRequest, Changed, Request, UserRequest
from kestrelctl.protocol.setting_requests import RemoveSetting, SetSetting
from kestrelctl.protocol.triggers import TriggerRequest
from kestrelctl.protocol.views import Assets, Policies


class AskFlock(UserRequest, frozen=True, kw_only=True, tag="flock_status"):
    """Tell how the pool stands in its flock. Answered by `flock`."""

    answered_by = (FlockStatus,)
    repeats = True


class ListNeighbours(UserRequest, frozen=True, kw_only=True, tag="flock_pools"):
    """List the pools that this one knows. Answered by `flock_pools`: a page, by domain.

    Attributes:
        after: the domain after which the page starts.
    """

    answered_by = (Neighbours,)
    repeats = True

    limit: Count = 200
    after: str = ""


class JoinFlock(AdminRequest, frozen=True, kw_only=True, tag="flock_join"):
    """Join the flock that a pool is in (admins only), now and after each restart.

    Answered by `changed`, once that is durable; `flock_status` tells when it has come to pass.

    Attributes:
        domain: any one pool of it.
    """

    answered_by = (Changed,)
    only_admins_may = "change what it does in its flock"

    domain: Domain


class ForgetPool(AdminRequest, frozen=True, kw_only=True, tag="flock_forget"):
    """Stop joining through a pool (admins only). Answered by `changed`, once that is durable.

    A pool that answers stays in the flock. A pool that then knows no other is in none.

    Attributes:
        domain: the pool, as `flock_join` named it.
    """

    answered_by = (Changed,)
    only_admins_may = "change what it does in its flock"

    domain: Domain


class LeaveFlock(AdminRequest, frozen=True, kw_only=True, tag="flock_leave"):
    """Leave the flock (admins only). Answered by `changed`, once that is durable.

    What runs for others, and what others run for this pool, may end.
    """

    answered_by = (Changed,)
    only_admins_may = "change what it does in its flock"


class PingPool(AdminRequest, frozen=True, kw_only=True, tag="flock_ping"):
    """Tell whether another pool's manager answers, and how soon (admins only).

    Answered by `flock_pong`.
    """

    answered_by = (FlockPong,)
    only_admins_may = "change what it does in its flock"

    domain: Domain


class ListFlockRules(UserRequest, frozen=True, kw_only=True, tag="flock_rules"):
    """List the rules on lending and borrowing. Answered by `flock_rules`."""

    answered_by = (FlockRules,)
    repeats = True


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

    answered_by = (EventPage,)
    repeats = True

    query: EventQuery = EventQuery()
    after: Whole = 0
    limit: Count = 500


class ListWorkerGroups(UserRequest, frozen=True, kw_only=True, tag="worker_groups"):
    """List the groups of workers. Answered by `worker_groups`."""

    answered_by = (WorkerGroupList,)
    repeats = True


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
    """List the classes, and a page of the environments. Answered by `environments`.

    Attributes:
        of: the class to tell of; empty for all, which share the room for hosts in the answer.
        after: the number after which the page starts.
    """

    answered_by = (EnvironmentList,)
    repeats = True

    of: Name = ""
    after: Count = 0


class StartOneEnvironment(AdminRequest, frozen=True, kw_only=True, tag="environment_start"):
    """Start an environment (admins only); it stays until it is stopped. Answered by `changed`.

    Attributes:
        of: the name of its class.
        host: the worker on whose machine it starts; empty for the one with the most room.
    """

    answered_by = (Changed,)
    only_admins_may = "start and stop environments"

    of: Name
    host: Annotated[str, msgspec.Meta(max_length=3_000)] = ""


class StopEnvironments(AdminRequest, frozen=True, kw_only=True, tag="environment_stop"):
    """Stop environments (admins only). Answered by `changed`.

    Attributes:
        numbers: which; those of a class that work still needs are started anew.
    """

    answered_by = (Changed,)
    only_admins_may = "start and stop environments"

    numbers: Annotated[list[Count], msgspec.Meta(min_length=1, max_length=1_000)]


EnvironmentRequest: TypeAlias = ListEnvironments | StartOneEnvironment | StopEnvironments


UsageBy = Literal["user", "group"]


class ListWorkers(UserRequest, frozen=True, kw_only=True, tag="workers"):
    """List workers. Answered by `workers`.

    Attributes:
        names: parts of addresses; empty for all.
        where: only workers of which this expression is true; such a page may be empty.
    """

    answered_by = (Workers,)
    repeats = True

    names: list[str] = []
    limit: Count = 1000
    after: str = ""
    where: str = ""


class DrainWorkers(AdminRequest, frozen=True, kw_only=True, tag="drain"):
    """Give workers nothing new (admins only). Answered by `changed`."""

    answered_by = (Changed,)
    only_admins_may = "drain and resume workers"

    names: list[str]


class ResumeWorkers(AdminRequest, frozen=True, kw_only=True, tag="resume"):
    """End a drain or quarantine (admins only). Answered by `changed`."""

    answered_by = (Changed,)
    only_admins_may = "drain and resume workers"

    names: list[str]


class ResizeWorker(AdminRequest, frozen=True, kw_only=True, tag="resize"):
    """Have a worker offer more or less, until its process ends (admins only).

    Answered by `workers`, when the worker has done so.
    """

    answered_by = (Workers,)
    only_admins_may = "drain and resume workers"

    name: str
    change: AssetChange


class EnrollWorker(AdminRequest, frozen=True, kw_only=True, tag="enroll"):
    """Let a machine join as a worker (admins only). Answered by `enrolled`.

    Attributes:
        name: the name under which it joins; empty to let the machine choose.
        valid_seconds: how long it may take to do so, from a minute to 30 days.
    """

    answered_by = (Enrolled,)
    only_admins_may = "let machines join"

    name: str = ""
    valid_seconds: float = DEFAULT_SECONDS


class RevokeWorkers(AdminRequest, frozen=True, kw_only=True, tag="revoke"):
    """Delete workers' accounts, and so end their sessions (admins only). Answered by `changed`.

    Attributes:
        names: whole names or addresses of accounts; parts of them do not count.
    """

    answered_by = (Changed,)
    only_admins_may = "revoke workers"

    names: list[str]


class PoolStatus(UserRequest, frozen=True, kw_only=True, tag="pool_status"):
    """Show the pool in numbers. Answered by `pool`."""

    answered_by = (PoolSummary,)
    repeats = True


class PoolOverview(UserRequest, frozen=True, kw_only=True, tag="pool_overview"):
    """Show the pool at a glance.

    Answered by `overview`, which is made anew at most once a second however many ask.

    Attributes:
        jobs: at most so many of the active ones.
    """

    answered_by = (Overview,)
    repeats = True

    jobs: Count = 100


class HandOver(AdminRequest, frozen=True, kw_only=True, tag="hand_over"):
    """Have a manager that stands by lead the pool (admins only).

    Answered by `changed`, with the host of one that is ready.
    """

    answered_by = (Changed,)
    only_admins_may = "hand a pool over"


class PoolTraffic(UserRequest, frozen=True, kw_only=True, tag="pool_traffic"):
    """Tell what the manager has received and sent. Answered by `traffic`."""

    answered_by = (Traffic,)
    repeats = True


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

    answered_by = (Policies,)
    repeats = True


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

    answered_by = (Assets,)
    repeats = True


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

    answered_by = (UsedByUsers,)
    repeats = True

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

    answered_by = (Users,)
    repeats = True

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

    answered_by = (Changed,)
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

    answered_by = (Groups,)
    repeats = True

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
    RequestAboutJobs
    | ListWorkers
    | DrainWorkers
    | ResumeWorkers
    | ResizeWorker
    | EnrollWorker
    | RevokeWorkers
    | PoolStatus
    | PoolTraffic
    | HandOver
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
