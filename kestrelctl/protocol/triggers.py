"""Requests of users about triggers, with answers. `docs/protocol.md` shows one of each."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.model.numbers import PoolMoment
from kestrelctl.protocol.request import AdminRequest, Changed, Reply, UserRequest

Name = Annotated[str, msgspec.Meta(max_length=100)]
MOST_TEXT_CHARACTERS = 10_000


class TriggerView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger.

    Attributes:
        true_since, fired_at: seconds since the epoch; None if it is not true, or never fired.
        times: how often it has fired.
        problem: why it could not be evaluated the last time.
    """

    name: str
    expr: str
    cmd: str
    tick_seconds: float
    on_update_check: bool = False
    for_seconds: float = 0.0
    cooldown_seconds: float = 0.0
    enabled: bool = True
    true_since: PoolMoment | None = None
    fired_at: PoolMoment | None = None
    times: int = 0
    problem: str = ""


class TriggerList(Reply, frozen=True, kw_only=True, tag="triggers"):
    """All triggers."""

    triggers: list[TriggerView]


class FiredView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger fired: when, what was to be done, and what could not be begun."""

    at: PoolMoment
    trigger: str
    actions: list[str]
    problems: list[str] = []


class FiredList(Reply, frozen=True, kw_only=True, tag="triggers_fired"):
    """The times when triggers fired, the latest last."""

    fired: list[FiredView]


class TriggerTest(Reply, frozen=True, kw_only=True, tag="trigger_test"):
    """The result of testing a trigger.

    Attributes:
        is_true: what its expression comes to now.
        actions: what it would have done now if it fired.
        problem: why that cannot be said.
        would_have_fired: the recorded moments when it would have; seconds since the epoch.
        recorded: how many moments are recorded.
        recorded_since: the first of them; None if there are none.
    """

    is_true: bool
    actions: list[str]
    problem: str = ""
    would_have_fired: list[float] = []
    recorded: int = 0
    recorded_since: PoolMoment | None = None


class ListTriggers(UserRequest, frozen=True, kw_only=True, tag="triggers"):
    """List the triggers. Answered by `triggers`."""

    answered_by = (TriggerList,)


class ListFired(AdminRequest, frozen=True, kw_only=True, tag="triggers_fired"):
    """Tell when triggers fired, the latest last, at most 1,000 (admins only).

    Answered by `triggers_fired`.

    Attributes:
        name: the trigger; empty for all.
    """

    answered_by = (FiredList,)
    only_admins_may = "test and switch triggers, and see what they did"

    name: Name = ""


class TryTrigger(AdminRequest, frozen=True, kw_only=True, tag="trigger_test"):
    """Tell what a trigger would do now, and when it would have fired (admins only).

    Nothing is done. Answered by `trigger_test`.

    Attributes:
        text: a definition to be tested instead of that which the pool has, as in a file.
    """

    answered_by = (TriggerTest,)
    only_admins_may = "test and switch triggers, and see what they did"

    name: Name
    text: Annotated[str, msgspec.Meta(max_length=MOST_TEXT_CHARACTERS)] = ""


class EnableTrigger(AdminRequest, frozen=True, kw_only=True, tag="trigger_enable"):
    """Have a trigger looked at, or not (admins only). Answered by `changed`."""

    answered_by = (Changed,)
    only_admins_may = "test and switch triggers, and see what they did"

    name: Name
    enabled: bool


TriggerRequest: TypeAlias = ListTriggers | ListFired | TryTrigger | EnableTrigger
TriggerAnswer: TypeAlias = TriggerList | FiredList | TriggerTest
