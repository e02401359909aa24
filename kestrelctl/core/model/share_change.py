"""A change that an admin makes for a user or a group of users: only what is named changes."""

from __future__ import annotations

import math
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from kestrelctl.core.model.records import GroupRecord, UserRecord
from kestrelctl.core.model.worker.assets import (
    MAX_ASSETS,
    MILLI,
    MOST_OF_AN_ASSET,
    is_asset_name,
    no_asset,
)

#: Weights of users and of groups are multiplied and divided: smaller ones would come to nothing.
LEAST_WEIGHT = 0.000_001
MOST_WEIGHT = 1_000_000.0
#: A bound is no more than this: more tasks than a pool can have.
MOST_TASKS_BOUND = 1 << 53

R = TypeVar("R", UserRecord, GroupRecord)


class ShareChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings from now on. Those that are unset stay as they are; None takes a bound away.

    Attributes:
        weight: of the share.
        max_running: attempts at workers at once.
        max_queued: tasks without a final state.
        limits: asset -> amount at workers at once, in its natural unit.
    """

    weight: float | UnsetType = UNSET
    max_running: int | UnsetType | None = UNSET
    max_queued: int | UnsetType | None = UNSET
    limits: dict[str, float | None] = {}


class GroupChange(msgspec.Struct, frozen=True):
    """A change of the group of that name; if there is none, there is from now on."""

    name: str
    change: ShareChange


def problem_with_weight(weight: float) -> str | None:
    """Says what is wrong with a weight; None if all is well."""
    if math.isfinite(weight) and LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        return None
    return f"a weight is at least 0.000001 and at most {MOST_WEIGHT:,.0f}, not {weight:,.10g}"


def problem_with_number(name: str, number: int | None) -> str | None:
    """Says what is wrong with a bound on numbers of tasks; None if all is well."""
    if number is None or 0 <= number <= MOST_TASKS_BOUND:
        return None
    return f"{name} is 0 to {MOST_TASKS_BOUND:,}, or none, not {number:,}"


def problem_with_change(record: UserRecord | GroupRecord, change: ShareChange) -> str | None:
    """The first thing wrong with a change, in words for whoever wants it; None if all is well.

    Args:
        record: what is to be changed.
    """
    problem = None
    if change.weight is not UNSET:
        problem = problem_with_weight(change.weight)
    if change.max_running is not UNSET:
        problem = problem or problem_with_number("max_running", change.max_running)
    if change.max_queued is not UNSET:
        problem = problem or problem_with_number("max_queued", change.max_queued)
    if problem is None:
        problem = next(filter(None, map(_problem_with_limit, change.limits.items())), None)
    limited = len(record.limits.keys() - change.limits.keys())
    limited += sum(amount is not None for amount in change.limits.values())
    if problem is None and limited > MAX_ASSETS:
        problem = f"there are limits on at most {MAX_ASSETS} assets, not {limited}"
    return problem


def _problem_with_limit(limit: tuple[str, float | None]) -> str | None:
    name, amount = limit
    if not is_asset_name(name):
        return no_asset(name)
    if amount is not None and not (amount == 0 or 1 / MILLI <= amount < MOST_OF_AN_ASSET):
        return f"a limit on {name} is 0, or 0.001 to less than 2^60, not {amount:,.10g}"
    return None


def changed(record: R, change: ShareChange) -> R:
    """Returns the settings after a change."""
    limits = dict(record.limits)
    for name, amount in change.limits.items():
        if amount is None:
            limits.pop(name, None)
        else:
            limits[name] = round(amount * MILLI)
    return msgspec.structs.replace(
        record,
        weight=record.weight if change.weight is UNSET else change.weight,
        max_running=record.max_running if change.max_running is UNSET else change.max_running,
        max_queued=record.max_queued if change.max_queued is UNSET else change.max_queued,
        limits=limits,
    )
