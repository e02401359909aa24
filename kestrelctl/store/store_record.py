"""All that a manager has its store write."""

from __future__ import annotations

from typing import TypeAlias

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.event_records import EventsDropped
from kestrelctl.core.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.core.model.records import Record
from kestrelctl.core.triggers.fired import FiredDropped, TriggerFired
from kestrelctl.core.triggers.recorded_moment import MomentRecorded, MomentsDropped

#: Records of what became of members.
MemberRecord: TypeAlias = MembershipEvent | EventsDropped
#: Records of what the pool does by itself: handlers and triggers.
RuleRecord: TypeAlias = (
    HandlerAwaits | HandlerSettled | TriggerFired | FiredDropped | MomentRecorded | MomentsDropped
)
StoreRecord: TypeAlias = Record | MemberRecord | RuleRecord
