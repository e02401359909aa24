"""What is durable of the flock, as rows of the SQLite store, and back."""

from __future__ import annotations

import logging
import sqlite3

import msgspec

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import FlockPeer, FlockRecord, FlockRuleGone

log = logging.getLogger(__name__)

_PUT_RULE = "INSERT OR REPLACE INTO flock_rules (name, direction, rule) VALUES (?, ?, ?)"
_PUT_PEER = "INSERT OR REPLACE INTO flock_peers (pool, through, heard_at) VALUES (?, ?, ?)"

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(FlockRule)


def write_flock(connection: sqlite3.Connection, record: FlockRecord) -> None:
    """Writes a record."""
    if isinstance(record, FlockRule):
        row = (record.name, record.direction, _encoder.encode(record))
        connection.execute(_PUT_RULE, row)
    elif isinstance(record, FlockRuleGone):
        connection.execute("DELETE FROM flock_rules WHERE name = ?", (record.name,))
    elif isinstance(record, FlockPeer):
        connection.execute(_PUT_PEER, (record.pool, record.through, record.heard_at))
    else:
        connection.execute("DELETE FROM flock_peers WHERE pool = ?", (record.pool,))


def stored_rules(connection: sqlite3.Connection) -> list[FlockRule]:
    """Every rule, by name. In place of one that cannot be read there is one that denies all in its
    direction: it may have been the one that kept somebody away.
    """
    rows = connection.execute("SELECT name, direction, rule FROM flock_rules ORDER BY name")
    return [_rule(str(name), direction, rule) for name, direction, rule in rows]


def _rule(name: str, direction: object, column: object) -> FlockRule:
    try:
        found = _decoder.decode(column if isinstance(column, bytes) else str(column))
        if found.name == name and found.direction == direction:
            return found
        why = "it belongs to another row"
    except (msgspec.DecodeError, UnicodeError) as error:
        why = str(error)
    log.error("rule %s of the flock denies all until it is set again: %s", name, why)
    return FlockRule(
        name=name,
        direction="borrow" if direction == "borrow" else "lend",
        action="deny",
        order=0,
    )


def stored_peers(connection: sqlite3.Connection) -> list[FlockPeer]:
    """Every pool to find the flock by, by domain, without what no manager writes."""
    rows = connection.execute("SELECT pool, through, heard_at FROM flock_peers ORDER BY pool")
    return [
        FlockPeer(pool=pool, through=bool(through), heard_at=heard_at)
        for pool, through, heard_at in rows
        if isinstance(pool, str) and through in (0, 1) and isinstance(heard_at, float)
    ]
