"""All that a manager has its store write."""

from __future__ import annotations

from typing import TypeAlias

from kestrelctl.core.model.records import Record
from kestrelctl.membership.event_records import EventsDropped
from kestrelctl.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.membership.membership_event import MembershipEvent
from kestrelctl.membership.worker_group_definition import WorkerGroup, WorkerGroupGone
from kestrelctl.triggers.recorded_moment import MomentRecorded, MomentsDropped
from kestrelctl.triggers.trigger_fired import FiredDropped, TriggerFired

#: Of members: what became of them, and their groups.
MemberRecord: TypeAlias = MembershipEvent | EventsDropped | WorkerGroup | WorkerGroupGone
#: Of what the pool does by itself: handlers and triggers.
RuleRecord: TypeAlias = (
    HandlerAwaits | HandlerSettled | TriggerFired | FiredDropped | MomentRecorded | MomentsDropped
)
StoreRecord: TypeAlias = Record | MemberRecord | RuleRecord
