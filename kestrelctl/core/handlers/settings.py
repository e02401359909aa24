"""What operators set: rules of the flock, shares of users and groups, consumption policies."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from kestrelctl.core.attempts.recounting import recount
from kestrelctl.core.effects import Answer
from kestrelctl.core.events import ChangeFlock, DropGroup, DropPolicy, PutPolicy, SetGroup, SetUser
from kestrelctl.core.handlers.stored_sums import hold_or_let_go
from kestrelctl.core.handlers.submission import refuse
from kestrelctl.core.model.files.byte_limit import problem_with_byte_limit
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.mail_address import problem_with_mail
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.records import (
    FlockRuleGone,
    GroupGone,
    PolicyGone,
    PolicyRecord,
    UserRecord,
)
from kestrelctl.core.model.share_change import changed, problem_with_change
from kestrelctl.core.policies.bad_policy import BadPolicy
from kestrelctl.core.policies.loading import load
from kestrelctl.core.policies.named_policy import NamedPolicy
from kestrelctl.core.state import State


def on_change_flock(state: State, event: ChangeFlock) -> None:
    """Remembers all of it, or refuses all of it."""
    for record in event.records:
        problem = state.flock.problem_with(record)
        if problem is not None:
            code, message = problem
            hint = "kestrelctl flock policy list" if code == "not-found" else ""
            state.emit(Answer(request=event.request, error=code, message=message, hint=hint))
            return
    for record in event.records:
        state.flock.apply(record)
        state.record(record)
        if isinstance(record, FlockRule | FlockRuleGone):
            done = "set" if isinstance(record, FlockRule) else "removed"
            state.note("info", f"rule {record.name} of the flock was {done} by {event.cause}")
    for gone in state.flock.surplus():
        state.flock.apply(gone)
        state.record(gone)
    if event.request:
        state.emit(Answer(request=event.request))


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


#: How many policies a pool may have.
MAX_POLICIES = 100


def on_put_policy(state: State, event: PutPolicy) -> None:
    """Puts a policy in force, or refuses it with the place of its mistake.

    What runs stays charged as it was; what starts from now on is charged by the new policy.
    """
    record = PolicyRecord(event.name, event.workers, event.text)
    if event.name not in state.policies and len(state.policies.records()) >= MAX_POLICIES:
        _refuse(state, event.request, "usage", f"a pool has at most {MAX_POLICIES} policies")
        return
    try:
        policy = NamedPolicy(record)
        capacities = {
            id(worker.cls): worker.cls.capacity
            for worker in state.workers.values()
            if worker.cls.ad_known and policy.is_for(worker.counted_ad, worker.jid)
        }
        load(event.text, list(capacities.values()))
    except BadPolicy as error:
        what = f"policy {event.name} is refused: {error.what}"
        _refuse(state, event.request, "usage", what, error.place)
        return
    state.policies.put(policy)
    state.record(record)
    _reclass(state)
    state.note("info", f"policy {event.name} was set by {event.cause}")
    state.emit(Answer(request=event.request, tasks=_workers_of(state, event.name)))


def on_drop_policy(state: State, event: DropPolicy) -> None:
    """Takes a policy out of force."""
    if event.name not in state.policies:
        _refuse(state, event.request, "not-found", f"the pool has no policy {event.name}")
        return
    state.policies.remove(event.name)
    state.record(PolicyGone(event.name))
    _reclass(state)
    state.note("info", f"policy {event.name} was removed by {event.cause}")
    state.emit(Answer(request=event.request))


def _reclass(state: State) -> None:
    """Gives each worker the class that it is of now. Its books stay as they are."""
    before = {jid: worker.cls for jid, worker in state.workers.items()}
    state.supply.reclass(state.workers.values())
    for jid, worker in state.workers.items():
        if worker.cls is not before[jid]:
            state.touch(worker)


def _workers_of(state: State, name: str) -> int:
    return sum(
        worker.cls.policy is not None and worker.cls.policy.name == name
        for worker in state.workers.values()
    )


def _refuse(state: State, request: str, code: str, message: str, cause: str = "") -> None:
    hint = "docs/aggregates.md shows policies" if cause else "kestrelctl pool policy list"
    state.emit(Answer(request=request, error=code, message=message, cause=cause, hint=hint))
