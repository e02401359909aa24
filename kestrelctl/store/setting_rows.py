"""Settings of all kinds, and the pools to find the flock by, as rows of a store, and back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import msgspec

from kestrelctl.core.model.records import FlockPeer, FlockRecord
from kestrelctl.core.model.setting import Setting, SettingGone
from kestrelctl.core.settings.kind import AnyKind
from kestrelctl.core.settings.table import BY_STRUCT, KINDS
from kestrelctl.store.connection import TableConnection, TableReader

log = logging.getLogger(__name__)

_PUT = "INSERT OR REPLACE INTO settings (kind, name, about, value) VALUES (?, ?, ?, ?)"

_encoder = msgspec.json.Encoder()


def write_setting(connection: TableConnection, record: Setting | SettingGone) -> None:
    """Writes a record."""
    if isinstance(record, SettingGone):
        row = (BY_STRUCT[record.kind].word, record.name)
        connection.execute("DELETE FROM settings WHERE kind = ? AND name = ?", row)
        return
    kind = BY_STRUCT[type(record)]
    value = _encoder.encode(record)
    connection.execute(_PUT, (kind.word, record.name, kind.about(record), value))


def stored_settings(connection: TableReader) -> list[Setting]:
    """Every setting, by kind in the order of `KINDS` and by name, with what its kind puts in place
    of those that cannot be read.
    """
    return [setting for kind in KINDS for setting in _of_kind(connection, kind)]


def _of_kind(connection: TableReader, kind: AnyKind) -> Iterator[Setting]:
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind.struct)
    rows = connection.execute(
        "SELECT name, about, value FROM settings WHERE kind = ? ORDER BY name", (kind.word,)
    )
    for name, about, value in rows:
        try:
            found = decoder.decode(value if isinstance(value, bytes) else str(value))
            if (found.name, kind.about(found)) == (name, about):
                yield found
                continue
            why = "it belongs to another row"
        except (msgspec.DecodeError, UnicodeError) as error:
            why = str(error)
        instead = kind.instead(str(name), str(about))
        holds = "counts as not set" if instead is None else f"is {instead} until it is set again"
        log.error("%s cannot be read, and %s: %s", kind.one.format(name), holds, why)
        if instead is not None:
            yield instead


_PUT_PEER = "INSERT OR REPLACE INTO flock_peers (pool, through, heard_at) VALUES (?, ?, ?)"


def write_flock(connection: TableConnection, record: FlockRecord) -> None:
    """Writes a record."""
    if isinstance(record, FlockPeer):
        connection.execute(_PUT_PEER, (record.pool, record.through, record.heard_at))
    else:
        connection.execute("DELETE FROM flock_peers WHERE pool = ?", (record.pool,))


def stored_peers(connection: TableReader) -> list[FlockPeer]:
    """Every pool by which the flock is found, by domain, without rows that no manager writes."""
    rows = connection.execute("SELECT pool, through, heard_at FROM flock_peers ORDER BY pool")
    return [
        FlockPeer(pool=pool, through=bool(through), heard_at=heard_at)
        for pool, through, heard_at in rows
        if isinstance(pool, str) and through in (0, 1) and isinstance(heard_at, float)
    ]
