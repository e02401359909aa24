"""Consumption policies: what tasks are charged on which workers."""

from __future__ import annotations

from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.core.model.records import PolicyRecord
from kestrelctl.core.policies.bad_policy import BadPolicy
from kestrelctl.core.policies.loading import load, problem_with_charges
from kestrelctl.core.policies.named_policy import NamedPolicy
from kestrelctl.core.settings.kind import SettingKind
from kestrelctl.core.state import State
from kestrelctl.errors import UsageError


def _must_make_sense(wanted: PolicyRecord) -> None:
    if not is_name(wanted.name):
        text = f"{wanted.name[:80]!r} cannot be the name of a policy"
        raise UsageError(text, cause=NAME_RULE)


def _checked(state: State, wanted: PolicyRecord) -> PolicyRecord:
    try:
        policy = NamedPolicy(wanted)
        capacities = {
            id(worker.cls): worker.cls.capacity
            for worker in state.workers.values()
            if worker.cls.ad_known and policy.is_for(worker.counted_ad, worker.jid)
        }
        load(wanted.text, list(capacities.values()))
    except BadPolicy as error:
        raise UsageError(
            f"policy {wanted.name} is refused: {error.what}",
            cause=error.place,
            hint="docs/aggregates.md shows policies",
        ) from None
    return wanted


def _restore(state: State, policy: PolicyRecord) -> None:
    try:
        named, nothing = NamedPolicy(policy), problem_with_charges(policy.text)
    except BadPolicy as error:
        raise UsageError(error.what, cause=error.place) from None
    state.policies.put(named)
    if nothing is not None:  # it was taken under other rules: what it is right for goes on
        state.note("warning", f"policy {policy.name}: {nothing.what}, {nothing.place}")


def _put(state: State, policy: PolicyRecord, _is_new: bool) -> None:
    """Puts a policy in force: tasks that start from now on are charged by it."""
    state.policies.put(NamedPolicy(policy))
    _reclass(state)


def _removed(state: State, policy: PolicyRecord) -> None:
    state.policies.remove(policy.name)
    _reclass(state)


def _reclass(state: State) -> None:
    """Gives each worker its present class. What it is charged stays as it is."""
    before = {jid: worker.cls for jid, worker in state.workers.items()}
    state.supply.reclass(state.workers.values())
    for jid, worker in state.workers.items():
        if worker.cls is not before[jid]:
            state.touch(worker)


def _workers(state: State, policy: PolicyRecord) -> int:
    return sum(
        worker.cls.policy is not None and worker.cls.policy.name == policy.name
        for worker in state.workers.values()
    )


POLICIES = SettingKind(
    word="policy",
    struct=PolicyRecord,
    wanted=PolicyRecord,
    most=100,
    one="policy {}",
    many="policies",
    missing="the pool has no policy {}",
    listed_by="kestrelctl pool policy list",
    must_make_sense=_must_make_sense,
    checked=_checked,
    restore=_restore,
    put=_put,
    removed=_removed,
    workers=_workers,
)
