"""What is set for users and groups: share of the pool, how much at once, where mail goes."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from kestrelctl.core.attempts.recounting import recount
from kestrelctl.core.effects import Answer
from kestrelctl.core.events import DropGroup, SetGroup, SetUser
from kestrelctl.core.handlers.stored_sums import hold_or_let_go
from kestrelctl.core.handlers.submission import refuse
from kestrelctl.core.model.byte_limit import problem_with_byte_limit
from kestrelctl.core.model.mail_address import problem_with_mail
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.records import GroupGone, UserRecord
from kestrelctl.core.model.share_change import changed, problem_with_change
from kestrelctl.core.state import State

#: How many groups a pool may have.
MAX_GROUPS = 1_000


def on_set_user(state: State, event: SetUser) -> None:
    """Sets what holds for a user from now on; what he has at workers stays there."""
    sharers = state.sharers
    if event.group and not sharers.has_group(event.group):
        text = f"the pool has no group {event.group}"
        refuse(state, event.request, "not-found", text, f"`kestrelctl group set {event.group}`")
        return
    sharer = sharers.find(event.name)
    record = sharer.record if sharer is not None else UserRecord(name=event.name)
    problem = problem_with_change(record, event.change)
    if event.mail:
        problem = problem or problem_with_mail(event.mail)
    if event.max_stored_bytes is not UNSET:
        problem = problem or problem_with_byte_limit("max_stored", event.max_stored_bytes)
    if event.max_queued_bytes is not UNSET:
        problem = problem or problem_with_byte_limit("max_queued_bytes", event.max_queued_bytes)
    if problem:
        refuse(state, event.request, "usage", problem)
        return
    record = changed(record, event.change)
    if event.mail is not None:
        record = msgspec.structs.replace(record, mail=event.mail)
    if event.max_stored_bytes is not UNSET:
        record = msgspec.structs.replace(record, max_stored_bytes=event.max_stored_bytes)
    if event.max_queued_bytes is not UNSET:
        record = msgspec.structs.replace(record, max_queued_bytes=event.max_queued_bytes)
    if event.group is not None:
        record = msgspec.structs.replace(record, group=event.group)
    was_full = sharers.of(event.name).stored.is_full
    sharer = sharers.put(record)
    recount(state)
    hold_or_let_go(state, sharer, was_full=was_full)
    half_life_seconds = state.config.usage_half_life_seconds
    if event.reset_usage:
        sharer.forget_usage(event.at)
    sharer.fold(event.at, half_life_seconds)
    sharer.record = sharer.recorded(event.at, half_life_seconds)
    state.record(sharer.record)
    state.note("info", f"user {event.name} was set by {event.cause}")
    state.emit(Answer(request=event.request))


def on_set_group(state: State, event: SetGroup) -> None:
    """Sets what holds for a group from now on; what its members have at workers stays there."""
    sharers = state.sharers
    if not sharers.has_group(event.name) and len(sharers.groups()) >= MAX_GROUPS:
        refuse(state, event.request, "usage", f"a pool has at most {MAX_GROUPS:,} groups")
        return
    record = sharers.group(event.name)
    problem = problem_with_change(record, event.change)
    if problem:
        refuse(state, event.request, "usage", problem)
        return
    record = changed(record, event.change)
    sharers.put_group(record)
    recount(state)
    state.record(record)
    state.note("info", f"group {event.name} was set by {event.cause}")
    state.emit(Answer(request=event.request))


def on_drop_group(state: State, event: DropGroup) -> None:
    """Removes a group that nobody is in."""
    name = event.name
    if not state.sharers.has_group(name):
        refuse(state, event.request, "not-found", f"the pool has no group {name}")
        return
    members = len(state.sharers.members(name))
    if members:
        text = f"group {name} has {plural(members, 'member')}"
        hint = "take them out first: `kestrelctl user set NAME --no-group`"
        refuse(state, event.request, "usage", text, hint)
        return
    state.sharers.drop_group(name)
    recount(state)
    state.record(GroupGone(name))
    state.note("info", f"group {name} was removed by {event.cause}")
    state.emit(Answer(request=event.request))
