"""What the pool says of its members. `docs/protocol.md` shows one of each."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kestrelctl.membership.membership_event import MembershipEvent
from kestrelctl.membership.worker_group_definition import WorkerGroup
from kestrelctl.protocol.reply import Reply


class EventPage(Reply, frozen=True, kw_only=True, tag="events"):
    """What became of workers, in order.

    Attributes:
        after: the number after which the next page starts.
        more: whether that one may have anything now.
    """

    events: list[MembershipEvent]
    after: int
    more: bool = False


class WorkerGroupView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A group of workers, and how many of those that are there are in it."""

    group: WorkerGroup
    workers: int = 0


class WorkerGroupList(Reply, frozen=True, kw_only=True, tag="worker_groups"):
    """All groups of workers, by name."""

    groups: list[WorkerGroupView]


MemberAnswer: TypeAlias = EventPage | WorkerGroupList
