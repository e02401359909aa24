"""What is set for users and groups as rows of the SQLite store, and back."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from kestrelctl.core.model.files.byte_limit import (
    AS_FOR_ALL,
    MOST_STORED_SUM_BYTES,
    ByteLimit,
    problem_with_byte_limit,
)
from kestrelctl.core.model.mail_address import problem_with_mail
from kestrelctl.core.model.records import GroupRecord, StoredRecord, UserRecord
from kestrelctl.core.model.share_change import problem_with_number, problem_with_weight
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.store.rows import Unreadable, readable

log = logging.getLogger(__name__)

R = TypeVar("R")

_USER_COLUMNS = (
    "name, weight, member_of, max_running, max_queued, limits, usage, usage_at, mail, max_stored,"
    " max_queued_bytes"
)
_GROUP_COLUMNS = "name, weight, max_running, max_queued, limits"

#: With the values of `user_row` and of `group_row`.
PUT_USER = (
    f"INSERT OR REPLACE INTO users ({_USER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
PUT_GROUP = f"INSERT OR REPLACE INTO user_groups ({_GROUP_COLUMNS}) VALUES (?, ?, ?, ?, ?)"

#: With the values of a `StoredRecord`.
PUT_STORED = "INSERT OR REPLACE INTO stored (owner, hour, size_bytes) VALUES (?, ?, ?)"

#: As a user's column has it; nothing is NULL.
_NO_LIMIT = -1

_encoder = msgspec.json.Encoder()
_limits_decoder = msgspec.json.Decoder(Amounts)


def user_row(record: UserRecord) -> tuple[Any, ...]:
    """The record as `PUT_USER` wants it."""
    return (
        record.name,
        record.weight,
        record.group,
        record.max_running,
        record.max_queued,
        _encoder.encode(record.limits),
        record.usage,
        record.usage_at,
        record.mail,
        _limit_column(record.max_stored_bytes),
        _limit_column(record.max_queued_bytes),
    )


def _limit_column(limit: ByteLimit) -> int | None:
    if limit == AS_FOR_ALL:
        return None
    return _NO_LIMIT if limit is None else limit


def _byte_limit(column: object) -> ByteLimit:
    """The inverse; raises ValueError for what no manager writes."""
    if column is None:
        return AS_FOR_ALL
    if column == _NO_LIMIT:
        return None
    if not isinstance(column, int) or problem_with_byte_limit("a limit", column):
        raise ValueError(f"a limit of bytes cannot be {column!r}")
    return column


def group_row(record: GroupRecord) -> tuple[Any, ...]:
    """The record as `PUT_GROUP` wants it."""
    limits = _encoder.encode(record.limits)
    return (record.name, record.weight, record.max_running, record.max_queued, limits)


def stored_users(connection: sqlite3.Connection) -> list[UserRecord]:
    """Every user of whom something is stored, by name, without those that cannot be read."""
    rows = connection.execute(f"SELECT {_USER_COLUMNS} FROM users ORDER BY name")
    return _those_readable(rows, _user_record, "user")


def stored_groups(connection: sqlite3.Connection) -> list[GroupRecord]:
    """Every group, by name, without those that cannot be read."""
    rows = connection.execute(f"SELECT {_GROUP_COLUMNS} FROM user_groups ORDER BY name")
    return _those_readable(rows, _group_record, "group")


def stored_sums(connection: sqlite3.Connection) -> list[StoredRecord]:
    """What tasks have put into the file share, by user and hour, without what no manager writes."""
    rows = connection.execute("SELECT owner, hour, size_bytes FROM stored ORDER BY owner, hour")
    return [
        StoredRecord(owner, hour, size_bytes)
        for owner, hour, size_bytes in rows
        if isinstance(owner, str) and isinstance(hour, int) and isinstance(size_bytes, int)
        if 0 < size_bytes <= MOST_STORED_SUM_BYTES
    ]


def _those_readable(
    rows: Iterable[tuple[Any, ...]], record_of: Callable[[tuple[Any, ...]], R], what: str
) -> list[R]:
    found: list[R] = []
    for row in rows:
        try:
            with readable("its row"):
                found.append(record_of(row))
        except Unreadable as error:
            log.error("%s %s counts as one of which nothing is set: %s", what, row[0], error)
    return found


def _user_record(row: tuple[Any, ...]) -> UserRecord:
    name, weight, group, max_running, max_queued, limits, usage, usage_at, *others = row
    mail, max_stored, max_queued_bytes = others
    if not all(isinstance(n, float) and n >= 0 for n in (usage, usage_at)):
        raise ValueError(f"usage cannot be {usage!r} at {usage_at!r}")
    if mail != "" and problem_with_mail(str(mail)):
        raise ValueError(f"an address cannot be {mail!r}")
    _must_make_sense(name, weight, max_running, max_queued)
    return UserRecord(
        name=name,
        weight=weight,
        group=str(group),
        max_running=max_running,
        max_queued=max_queued,
        limits=_limits_decoder.decode(limits),
        usage=usage,
        usage_at=usage_at,
        mail=mail,
        max_stored_bytes=_byte_limit(max_stored),
        max_queued_bytes=_byte_limit(max_queued_bytes),
    )


def _group_record(row: tuple[Any, ...]) -> GroupRecord:
    name, weight, max_running, max_queued, limits = row
    _must_make_sense(name, weight, max_running, max_queued)
    return GroupRecord(
        name=name,
        weight=weight,
        max_running=max_running,
        max_queued=max_queued,
        limits=_limits_decoder.decode(limits),
    )


def _must_make_sense(name: object, weight: object, *numbers: object) -> None:
    """Raises ValueError for what no manager writes."""
    if not isinstance(name, str) or not name or "\ufffd" in name:
        raise ValueError("its name is none")
    if not isinstance(weight, float) or problem_with_weight(weight):
        raise ValueError(f"a weight cannot be {weight!r}")
    for number in numbers:
        if number is not None and not isinstance(number, int):
            raise ValueError(f"a bound cannot be {number!r}")
        if problem := problem_with_number("a bound", number):
            raise ValueError(problem)
