"""The pools to find the flock by, as rows of a store, and back."""

from __future__ import annotations

from kestrelctl.core.model.records import FlockPeer, FlockRecord
from kestrelctl.store.connection import TableConnection, TableReader

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
