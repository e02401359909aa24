"""Stored specs from before items lay apart: takes the items out of them.

This belongs to one step of `store.migrations`, and is changed as little as that.
"""

from __future__ import annotations

import sqlite3
from hashlib import sha256

import msgspec

_PIECE_ITEMS = 1_000

_Fields = dict[str, msgspec.Raw]
_decode = msgspec.json.Decoder(_Fields).decode
_decode_items = msgspec.json.Decoder(list[str]).decode
_encode = msgspec.json.Encoder().encode


def take_items_out(connection: sqlite3.Connection) -> None:
    """Moves the items of all specs into tables of their own, one spec after the other.

    A spec that cannot be read stays as it is: its job is reported when it is read.
    """
    for (job_id,) in connection.execute("SELECT job_id FROM specs ORDER BY job_id").fetchall():
        [spec] = connection.execute("SELECT spec FROM specs WHERE job_id = ?", (job_id,)).fetchone()
        try:
            fields = _decode(spec)
            items = _decode_items(fields.pop("items"))
        except (msgspec.DecodeError, TypeError, KeyError, UnicodeError):
            continue
        if items:
            size_bytes = len(spec.encode() if isinstance(spec, str) else spec)
            digest = _put(connection, items)
            connection.execute(
                "INSERT INTO apart (job_id, spec_bytes, item_count, items) VALUES (?, ?, ?, ?)",
                (job_id, size_bytes, len(items), digest),
            )
            connection.execute(
                "UPDATE specs SET spec = ? WHERE job_id = ?", (_encode(fields), job_id)
            )


def _put(connection: sqlite3.Connection, items: list[str]) -> bytes:
    bodies = [
        (first, _encode(items[first : first + _PIECE_ITEMS]))
        for first in range(0, len(items), _PIECE_ITEMS)
    ]
    digest = sha256(b"".join(body for _, body in bodies)).digest()
    connection.executemany(
        "INSERT OR IGNORE INTO texts (digest, first, body) VALUES (?, ?, ?)",
        [(digest, first, body) for first, body in bodies],
    )
    return digest
