"""What operators set: rules of the flock, shares of users and groups, consumption policies, and how
many tokens the whole pool has.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from kestrelctl.core.attempts.recounting import recount
from kestrelctl.core.effects import Answer
from kestrelctl.core.events import (
    ChangeFlock,
    DropGroup,
    DropPolicy,
    DropToken,
    PutPolicy,
    PutToken,
    SetGroup,
    SetUser,
)
from kestrelctl.core.handlers.stored_sums import hold_or_let_go
from kestrelctl.core.handlers.submission import refuse
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.files.byte_limit import problem_with_byte_limit
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.mail_address import problem_with_mail
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.records import (
    FlockRuleGone,
    GroupGone,
    PolicyGone,
    PolicyRecord,
    TokenGone,
    TokenRecord,
    UserRecord,
)
from kestrelctl.core.model.share_change import changed, problem_with_change
from kestrelctl.core.model.validate import problem_with_tokens
from kestrelctl.core.model.worker.ad import WorkerAd
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
        _refuse_policy(state, event.request, "usage", f"a pool has at most {MAX_POLICIES} policies")
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
        _refuse_policy(state, event.request, "usage", what, error.place)
        return
    state.policies.put(policy)
    state.record(record)
    _reclass(state)
    state.note("info", f"policy {event.name} was set by {event.cause}")
    state.emit(Answer(request=event.request, tasks=_workers_of(state, event.name)))


def on_drop_policy(state: State, event: DropPolicy) -> None:
    """Takes a policy out of force."""
    if event.name not in state.policies:
        _refuse_policy(state, event.request, "not-found", f"the pool has no policy {event.name}")
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


def _refuse_policy(state: State, request: str, code: str, message: str, cause: str = "") -> None:
    hint = "docs/aggregates.md shows policies" if cause else "kestrelctl pool policy list"
    _refuse(state, request, code, message, hint, cause)


#: How many sorts of tokens a pool may have.
MAX_SORTS = 100


def on_put_token(state: State, event: PutToken) -> None:
    """Sets how many tokens of one sort there are.

    Fewer than are held takes none away: nothing new is handed out until enough came back.
    """
    name, known = event.name, event.name in state.tokens
    problem = problem_with_tokens(name, event.total)
    if problem:
        return _refuse(state, event.request, "usage", problem)
    if not known and len(state.tokens.names) >= MAX_SORTS:
        text = f"a pool has at most {MAX_SORTS} assets of its own"
        return _refuse(state, event.request, "usage", text, "kestrelctl pool asset list")
    offering = [] if known else _offering(state.workers, name)
    if offering:
        text = f"{name} is offered by {plural(len(offering), 'worker')}, such as {offering[0]}"
        hint = "an asset is the pool's or the workers': choose another name"
        return _refuse(state, event.request, "usage", text, hint)
    record = TokenRecord(name, event.total)
    state.touch_tokens([name])
    state.tokens.put(record)
    state.record(record)
    if not known:
        _reshape(state, name)
    state.note("info", f"the pool has {event.total:,} {name}, set by {event.cause}")
    state.emit(Answer(request=event.request))
    return None


def on_drop_token(state: State, event: DropToken) -> None:
    """Takes all tokens of one sort away. What holds some goes on; who wants some asks workers."""
    name = event.name
    if name not in state.tokens:
        text = f"the pool has no asset {name[:80]} of its own"
        return _refuse(state, event.request, "not-found", text, "kestrelctl pool asset list")
    state.tokens.remove(name)
    state.record(TokenGone(name))
    _reshape(state, name)
    state.note("info", f"the pool's {name} was removed by {event.cause}")
    state.emit(Answer(request=event.request))
    return None


def note_clash(state: State, worker: str, before: WorkerAd | None, ad: WorkerAd) -> None:
    """Warns of what a worker offers in vain, because the pool has tokens of that name.

    Args:
        before: what it offered until now; None if it is new.
    """
    known = before.assets if before is not None else {}
    for name in state.tokens.names:
        if ad.assets.get(name) and not known.get(name):
            state.note(
                "warning",
                f"worker {worker} offers {name}, which the pool has itself: the worker's is not "
                "used",
            )


def _offering(workers: Mapping[str, Worker], name: str) -> list[str]:
    return [jid for jid, worker in workers.items() if worker.ad.assets.get(name)]


def _reshape(state: State, name: str) -> None:
    """Holds jobs that ask for this against workers anew."""
    asking = [job for job in state.jobs.values() if job.spec.request.get(name)]
    state.demand.reshape(asking)
    for shape in state.demand.waiting_shapes():
        if name in shape.tokens or name in shape.request:
            state.supply.wake_for(shape)


def _refuse(
    state: State, request: str, code: str, message: str, hint: str = "", cause: str = ""
) -> None:
    state.emit(Answer(request=request, error=code, message=message, cause=cause, hint=hint))
