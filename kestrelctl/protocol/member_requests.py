"""What users ask about members of the pool. `docs/protocol.md` shows one of each."""

from __future__ import annotations

from typing import TypeAlias

from kestrelctl.core.model.result import Count, Whole
from kestrelctl.membership.membership_event import EventQuery
from kestrelctl.membership.worker_group_definition import WorkerGroup
from kestrelctl.protocol.request import AdminRequest, UserRequest


class ListEvents(UserRequest, frozen=True, kw_only=True, tag="events"):
    """What became of workers. Answered by `events`: a page, in order.

    Attributes:
        after: the number after which the page starts; -1 for the latest there is: only what comes.
    """

    query: EventQuery = EventQuery()
    after: Whole = 0
    limit: Count = 500


class ListWorkerGroups(UserRequest, frozen=True, kw_only=True, tag="worker_groups"):
    """The groups of workers. Answered by `worker_groups`."""


class SetWorkerGroup(AdminRequest, frozen=True, kw_only=True, tag="worker_group_set"):
    """Make a group of workers, or replace the one of that name (admins only).

    Answered by `changed`; its `tasks` is how many workers are in it now.
    """

    only_admins_may = "change its groups of workers"

    group: WorkerGroup


class RemoveWorkerGroup(AdminRequest, frozen=True, kw_only=True, tag="worker_group_remove"):
    """Forget a group of workers (admins only). Answered by `changed`."""

    only_admins_may = "change its groups of workers"

    name: str


MemberRequest: TypeAlias = ListEvents | ListWorkerGroups | SetWorkerGroup | RemoveWorkerGroup
