"""Handlers' messages to come, and the times when triggers fired, as rows of a store."""

from __future__ import annotations

import logging

import msgspec

from kestrelctl.core.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.core.membership.handler_words import ToldEvent
from kestrelctl.core.triggers.fired import MOST_DROPPED, FiredDropped, TriggerFired
from kestrelctl.core.triggers.recorded_moment import MomentRecorded
from kestrelctl.store.connection import TableConnection, TableReader
from kestrelctl.store.port import RuleRecord

log = logging.getLogger(__name__)

_FIRED_COLUMNS = "number, at, trigger_name, actions, problems"
_DROP = """
    DELETE FROM triggers_fired WHERE number IN (
        SELECT number FROM (
            SELECT number, at FROM triggers_fired
            WHERE number < (SELECT max(number) FROM triggers_fired) ORDER BY number LIMIT ?) AS old
        WHERE at < ? OR number <= ?)
"""
_COURSE = """
    INSERT INTO trigger_courses (trigger_name, fired_at, times) VALUES (?, ?, 1)
    ON CONFLICT (trigger_name) DO UPDATE SET fired_at = excluded.fired_at,
        times = trigger_courses.times + 1
"""

_encoder = msgspec.json.Encoder()
_told = msgspec.json.Decoder(ToldEvent)
_texts = msgspec.json.Decoder(tuple[str, ...])


def write_rules(connection: TableConnection, record: RuleRecord) -> None:
    """Writes a record."""
    if isinstance(record, HandlerAwaits):
        put = "INSERT OR REPLACE INTO handler_lines (handler, number, told) VALUES (?, ?, ?)"
        connection.execute(put, (record.handler, record.number, _encoder.encode(record.told)))
    elif isinstance(record, HandlerSettled):
        connection.execute(
            "DELETE FROM handler_lines WHERE handler = ? AND number <= ?",
            (record.handler, record.up_to),
        )
    elif isinstance(record, TriggerFired):
        actions, problems = _encoder.encode(record.actions), _encoder.encode(record.problems)
        connection.execute(
            f"INSERT INTO triggers_fired ({_FIRED_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
            (record.number, record.at, record.trigger, actions, problems),
        )
        connection.execute(_COURSE, (record.trigger, record.at))
    elif isinstance(record, FiredDropped):
        connection.execute(_DROP, (MOST_DROPPED, record.before, record.up_to))
    elif isinstance(record, MomentRecorded):
        put = "INSERT OR REPLACE INTO trigger_moments (number, at, packed) VALUES (?, ?, ?)"
        connection.execute(put, (record.number, record.at, record.packed))
    else:
        connection.execute("DELETE FROM trigger_moments WHERE number <= ?", (record.up_to,))


def awaited(connection: TableReader) -> dict[str, tuple[int, int]]:
    """Implements `Store.awaited`."""
    rows = connection.execute(
        "SELECT handler, min(number), max(number) FROM handler_lines GROUP BY handler"
    )
    return {str(handler): (int(first), int(last)) for handler, first, last in rows}


def awaits(connection: TableReader, handler: str, after: int, limit: int) -> list[HandlerAwaits]:
    """Implements `Store.awaits`."""
    found: list[HandlerAwaits] = []
    for number, told in connection.execute(
        "SELECT number, told FROM handler_lines WHERE handler = ? AND number > ? ORDER BY number",
        (handler, after),
    ):
        if len(found) >= limit:
            break
        try:
            found.append(HandlerAwaits(handler, number, _told.decode(told)))
        except (msgspec.DecodeError, TypeError, UnicodeError) as error:
            log.error("what the handler %s is to be told cannot be read: %s", handler, error)
    return found


def fired(
    connection: TableReader, trigger: str, before: int | None, limit: int
) -> list[TriggerFired]:
    """Implements `Store.fired`."""
    conditions = ["true"]
    values: list[str | int] = []
    if trigger:
        conditions.append("trigger_name = ?")
        values.append(trigger)
    if before is not None:
        conditions.append("number < ?")
        values.append(before)
    rows = connection.execute(
        f"SELECT {_FIRED_COLUMNS} FROM triggers_fired WHERE {' AND '.join(conditions)}"
        " ORDER BY number DESC LIMIT ?",
        (*values, max(limit, 0)),
    )
    return [_fired(row) for row in rows][::-1]


def first_fired(connection: TableReader) -> TriggerFired | None:
    """Implements `Store.first_fired`."""
    row = connection.execute(
        f"SELECT {_FIRED_COLUMNS} FROM triggers_fired ORDER BY number LIMIT 1"
    ).fetchone()
    return None if row is None else _fired(row)


def _fired(row: tuple[int, float, str, bytes, bytes]) -> TriggerFired:
    number, at, trigger, *lists = row
    actions, problems = (_texts_of(each, number) for each in lists)
    return TriggerFired(
        number=number, at=float(at), trigger=str(trigger), actions=actions, problems=problems
    )


def _texts_of(encoded: bytes, number: int) -> tuple[str, ...]:
    try:
        return _texts.decode(encoded)
    except (msgspec.DecodeError, TypeError, UnicodeError):
        log.error("what trigger firing %s had done cannot be read", number)
        return ()


def trigger_courses(connection: TableReader) -> dict[str, tuple[float, int]]:
    """Implements `Store.trigger_courses`."""
    rows = connection.execute(
        "SELECT trigger_name, fired_at, times FROM trigger_courses ORDER BY trigger_name"
    )
    return {str(trigger): (float(at), int(times)) for trigger, at, times in rows}


def moments_kept(connection: TableReader) -> list[tuple[int, float]]:
    """Implements `Store.moments_kept`."""
    rows = connection.execute("SELECT number, at FROM trigger_moments ORDER BY number")
    return [(int(number), float(at)) for number, at in rows]


def moments(connection: TableReader, after: int, limit: int) -> list[MomentRecorded]:
    """Implements `Store.moments`."""
    rows = connection.execute(
        "SELECT number, at, packed FROM trigger_moments WHERE number > ? ORDER BY number LIMIT ?",
        (after, max(limit, 0)),
    )
    return [MomentRecorded(int(number), float(at), bytes(packed)) for number, at, packed in rows]
