"""Operators say what tasks are charged on which workers."""

from __future__ import annotations

from kestrelctl.core.effects import Answer
from kestrelctl.core.events import DropPolicy, PutPolicy
from kestrelctl.core.model.records import PolicyGone, PolicyRecord
from kestrelctl.core.policies.bad_policy import BadPolicy
from kestrelctl.core.policies.loading import load
from kestrelctl.core.policies.named_policy import NamedPolicy
from kestrelctl.core.state import State

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
