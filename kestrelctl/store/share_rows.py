"""Settings of users, and sums of what they have stored, as rows of a store, and back."""

from __future__ import annotations

import logging
import math
from typing import Any

import msgspec

from kestrelctl.core.model.files.byte_limit import (
    AS_FOR_ALL,
    MOST_STORED_SUM_BYTES,
    ByteLimit,
    problem_with_byte_limit,
)
from kestrelctl.core.model.names import problem_with_mail
from kestrelctl.core.model.records import StoredRecord, UserRecord
from kestrelctl.core.model.share_change import problem_with_number, problem_with_weight
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.store.connection import TableReader
from kestrelctl.store.rows import Unreadable, readable

log = logging.getLogger(__name__)

_USER_COLUMNS = (
    "name, weight, member_of, max_running, max_queued, limits, usage, usage_at, mail, max_stored,"
    " max_queued_bytes"
)

#: It takes the values of `user_row`.
PUT_USER = (
    f"INSERT OR REPLACE INTO users ({_USER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)

#: It takes the values of a `StoredRecord`.
PUT_STORED = "INSERT OR REPLACE INTO stored (owner, hour, size_bytes) VALUES (?, ?, ?)"

#: The column of a limit of bytes holds it for no limit; NULL means the limit of all users.
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
    """The inverse of `_limit_column`; raises ValueError for what no manager writes."""
    if column is None:
        return AS_FOR_ALL
    if column == _NO_LIMIT:
        return None
    if not isinstance(column, int) or problem_with_byte_limit("a limit", column):
        raise ValueError(f"a limit of bytes cannot be {column!r}")
    return column


def stored_users(connection: TableReader) -> list[UserRecord]:
    """Every user of whom something is stored, by name, without those that cannot be read."""
    rows = connection.execute(f"SELECT {_USER_COLUMNS} FROM users ORDER BY name")
    found: list[UserRecord] = []
    for row in rows:
        try:
            with readable("its row"):
                found.append(_user_record(row))
        except Unreadable as error:
            log.error("user %s counts as one of which nothing is set: %s", row[0], error)
    return found


def stored_sums(connection: TableReader) -> list[StoredRecord]:
    """Reads what tasks have put into the file share, by user and hour, as far as it can be."""
    rows = connection.execute("SELECT owner, hour, size_bytes FROM stored ORDER BY owner, hour")
    return [
        StoredRecord(owner, hour, size_bytes)
        for owner, hour, size_bytes in rows
        if isinstance(owner, str) and isinstance(hour, int) and isinstance(size_bytes, int)
        if 0 < size_bytes <= MOST_STORED_SUM_BYTES
    ]


def _user_record(row: tuple[Any, ...]) -> UserRecord:
    """Raises ValueError for what no manager writes."""
    name, weight, group, max_running, max_queued, limits, usage, usage_at, *others = row
    mail, max_stored, max_queued_bytes = others
    if not all(isinstance(n, float) and 0 <= n < math.inf for n in (usage, usage_at)):
        raise ValueError(f"usage cannot be {usage!r} at {usage_at!r}")
    if mail != "" and problem_with_mail(str(mail)):
        raise ValueError(f"an address cannot be {mail!r}")
    if not isinstance(name, str) or not name or "\ufffd" in name:
        raise ValueError("its name is none")
    if not isinstance(weight, float) or problem_with_weight(weight):
        raise ValueError(f"a weight cannot be {weight!r}")
    for number in (max_running, max_queued):
        if number is not None and not isinstance(number, int):
            raise ValueError(f"a bound cannot be {number!r}")
        if problem := problem_with_number("a bound", number):
            raise ValueError(problem)
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
