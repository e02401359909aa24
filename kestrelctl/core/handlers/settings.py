"""Applies what operators set: settings of every kind, users' shares, pools to find the flock by."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from kestrelctl.core.attempts.recounting import recount
from kestrelctl.core.effects import Answer, SettingChanged
from kestrelctl.core.events import ChangeFlock, DropSetting, PutSetting, SetUser
from kestrelctl.core.features.stored_bytes import hold_or_let_go
from kestrelctl.core.model.files.byte_limit import problem_with_byte_limit
from kestrelctl.core.model.names import problem_with_mail
from kestrelctl.core.model.records import GroupRecord, UserRecord
from kestrelctl.core.model.setting import SettingGone
from kestrelctl.core.model.share_change import changed, problem_with_change
from kestrelctl.core.settings.table import BY_STRUCT, BY_WANTED
from kestrelctl.core.state import State
from kestrelctl.errors import KestrelError, NotFound, UsageError


def on_put_setting(state: State, event: PutSetting) -> None:
    """Sets something that the pool has by name, or refuses it with the reason."""
    kind = BY_WANTED[type(event.setting)]
    known = state.settings.of(kind.struct)
    is_new = event.setting.name not in known
    try:
        kind.must_make_sense(event.setting)
        setting = kind.checked(state, event.setting)
        if is_new and len(known) >= kind.most:
            text = f"a pool has at most {kind.most:,} {kind.many}"
            raise UsageError(text, hint=kind.listed_by)
    except KestrelError as error:
        _refuse(state, event.request, error)
        return
    state.settings.put(setting)
    kind.put(state, setting, is_new)
    state.record(setting)
    state.note("info", f"{kind.news(setting)} by {event.cause}")
    state.emit(SettingChanged(kind=kind.struct))
    state.emit(Answer(request=event.request, tasks=kind.workers(state, setting)))


def on_drop_setting(state: State, event: DropSetting) -> None:
    """Removes something that was set, if it is there and may go."""
    kind = BY_STRUCT[event.kind]
    setting = state.settings.of(event.kind).get(event.name)
    try:
        if setting is None:
            raise NotFound(kind.missing.format(event.name[:80]), hint=kind.listed_by)
        kind.must_stay(state, setting)
    except KestrelError as error:
        _refuse(state, event.request, error)
        return
    state.settings.remove(setting)
    kind.removed(state, setting)
    state.record(SettingGone(kind.struct, setting.name))
    state.note("info", f"{kind.one.format(setting.name)} was removed by {event.cause}")
    state.emit(SettingChanged(kind=kind.struct))
    state.emit(Answer(request=event.request))


def _refuse(state: State, request: str, error: KestrelError) -> None:
    state.refuse(request, error.code, error.message, error.hint or "", error.cause or "")


def on_change_flock(state: State, event: ChangeFlock) -> None:
    """Remembers all of the changes, or refuses all of them."""
    for record in event.records:
        problem = state.flock.problem_with(record)
        if problem is not None:
            state.refuse(event.request, "usage", problem)
            return
    for record in event.records:
        state.flock.apply(record)
        state.record(record)
    for gone in state.flock.surplus():
        state.flock.apply(gone)
        state.record(gone)
    if event.request:
        state.emit(Answer(request=event.request))


def on_set_user(state: State, event: SetUser) -> None:
    """Sets what holds for a user from now on; what he has at workers stays there."""
    sharers = state.sharers
    if event.group and event.group not in state.settings.of(GroupRecord):
        text = f"the pool has no group {event.group}"
        state.refuse(event.request, "not-found", text, f"`kestrelctl group set {event.group}`")
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
        state.refuse(event.request, "usage", problem)
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
