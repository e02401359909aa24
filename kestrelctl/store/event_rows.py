"""Events of members, and present members, as rows of a store."""

from __future__ import annotations

import logging

import msgspec

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.event_records import MOST_DROPPED
from kestrelctl.core.membership.roll import GONE_KINDS
from kestrelctl.store.connection import TableConnection, TableReader
from kestrelctl.store.port import MemberRecord

log = logging.getLogger(__name__)

_COLUMNS = "number, at, kind, worker, groups, reason"
_ADD = f"INSERT INTO member_events ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
_DROP = """
    DELETE FROM member_events WHERE number IN (
        SELECT number FROM (
            SELECT number, at FROM member_events
            WHERE number < (SELECT max(number) FROM member_events) ORDER BY number LIMIT ?) AS old
        WHERE at < ? OR number <= ?)
"""

_encoder = msgspec.json.Encoder()
_groups = msgspec.json.Decoder(tuple[str, ...])


def write_members(
    connection: TableConnection,
    record: MemberRecord,
) -> None:
    """Writes a record."""
    if isinstance(record, MembershipEvent):
        groups = _encoder.encode(record.groups) if record.groups else None
        row = (record.number, record.at, record.kind, record.worker, groups, record.reason)
        connection.execute(_ADD, row)
        if record.kind == "join":
            present = "INSERT OR REPLACE INTO members (worker, since) VALUES (?, ?)"
            connection.execute(present, (record.worker, record.number))
        elif record.kind in GONE_KINDS:
            connection.execute("DELETE FROM members WHERE worker = ?", (record.worker,))
    else:
        connection.execute(_DROP, (MOST_DROPPED, record.before, record.up_to))


def stored_events(
    connection: TableReader, after: int, since: float, limit: int
) -> list[MembershipEvent]:
    """Implements `Store.member_events`."""
    first = after
    if since > 0.0:
        oldest = "SELECT min(number) FROM member_events WHERE at >= ?"
        [found] = connection.execute(oldest, (since,)).fetchone()
        if found is None:
            return []
        first = max(after, found - 1)
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM member_events WHERE number > ? ORDER BY number LIMIT ?",
        (first, max(limit, 0)),
    )
    return [_event(row) for row in rows]


def _event(row: tuple[int, float, str, str, bytes | None, str]) -> MembershipEvent:
    number, at, kind, worker, groups, reason = row
    named: tuple[str, ...] = ()
    if groups is not None:
        try:
            named = _groups.decode(groups)
        except (msgspec.DecodeError, TypeError, UnicodeError):
            log.error("the groups of event %s cannot be read", number)
    return MembershipEvent(
        number=number,
        at=float(at),
        kind=str(kind),
        worker=str(worker),
        groups=named,
        reason=str(reason),
    )


def last_event_number(connection: TableReader) -> int:
    """Implements `Store.last_member_event`."""
    [found] = connection.execute("SELECT max(number) FROM member_events").fetchone()
    return int(found or 0)


def present_members(connection: TableReader) -> list[str]:
    """Implements `Store.members`."""
    rows = connection.execute("SELECT worker FROM members ORDER BY since")
    return [str(worker) for (worker,) in rows]
