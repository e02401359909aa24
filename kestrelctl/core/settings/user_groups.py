"""Groups of users, who share one weight and have bounds together."""

from __future__ import annotations

from kestrelctl.core.attempts.recounting import recount
from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.core.model.records import GroupRecord
from kestrelctl.core.model.share_change import (
    GroupChange,
    changed,
    problem_with_change,
    problem_with_number,
    problem_with_weight,
)
from kestrelctl.core.model.wording import plural
from kestrelctl.core.settings.kind import SettingKind
from kestrelctl.core.state import State
from kestrelctl.errors import UsageError


def _must_make_sense(wanted: GroupChange) -> None:
    if not is_name(wanted.name):
        text = f"{wanted.name[:80]!r} cannot be the name of a group"
        raise UsageError(text, cause=NAME_RULE)


def _checked(state: State, wanted: GroupChange) -> GroupRecord:
    record = state.sharers.group(wanted.name)
    problem = problem_with_change(record, wanted.change)
    if problem:
        raise UsageError(problem)
    return changed(record, wanted.change)


def _restore(_state: State, group: GroupRecord) -> None:
    """Refuses what no manager sets; everybody's bounds are made of all groups afterwards."""
    problem = problem_with_weight(group.weight)
    for number in (group.max_running, group.max_queued):
        problem = problem or problem_with_number("a bound", number)
    if problem:
        raise UsageError(problem)


def _must_stay(state: State, group: GroupRecord) -> None:
    members = len(state.sharers.members(group.name))
    if members:
        raise UsageError(
            f"group {group.name} has {plural(members, 'member')}",
            hint="take them out first: `kestrelctl user set NAME --no-group`",
        )


def _rebind(state: State) -> None:
    """Has everybody's bounds hold that are set now; what members have at workers stays there."""
    state.sharers.bind()
    recount(state)


USER_GROUPS = SettingKind(
    word="user group",
    struct=GroupRecord,
    wanted=GroupChange,
    most=1_000,
    one="group {}",
    many="groups",
    missing="the pool has no group {}",
    listed_by="kestrelctl group list",
    must_make_sense=_must_make_sense,
    checked=_checked,
    restore=_restore,
    put=lambda state, _group, _is_new: _rebind(state),
    must_stay=_must_stay,
    removed=lambda state, _group: _rebind(state),
)
