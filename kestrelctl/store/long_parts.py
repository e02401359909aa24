"""Items and long programs of jobs in a store: apart from specs, and equal ones once.

`apart` says for each job that has some what its row in `specs` lacks, and `texts` has that, by the
SHA-256 of its JSON: items in pieces that can be read one by one, a program as one piece. What no
job names any more is deleted with the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

import msgspec

from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.model.job.light_spec import Apart, is_long, lightened
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.store.connection import TableConnection, TableReader
from kestrelctl.store.item_window import ItemWindow

#: A piece has no more items than this, and ends with the one by which it reaches so many
#: characters: large enough that few are read for a job, small enough to be read at any moment.
PIECE_ITEMS = 1_000
PIECE_CHARACTERS = 64 * 1024

_encode = msgspec.json.Encoder().encode
_items_decoder = msgspec.json.Decoder(tuple[str, ...])
_program_decoder = msgspec.json.Decoder(Program)

_WINDOW = """
    SELECT first, body, item_count FROM apart JOIN texts ON digest = items
    WHERE job_id = ? AND first <= ? ORDER BY first DESC LIMIT 1
"""
_PROGRAM = "SELECT body FROM apart JOIN texts ON digest = program WHERE job_id = ?"
_PIECES = "SELECT body FROM texts WHERE digest = ? ORDER BY first"
_DROP = """
    DELETE FROM texts WHERE digest = :digest
        AND NOT EXISTS (SELECT 1 FROM apart WHERE items = :digest)
        AND NOT EXISTS (SELECT 1 FROM apart WHERE program = :digest)
"""


def put_apart(connection: TableConnection, job_id: int, spec: JobSpec) -> JobSpec:
    """Writes what is long in the whole spec of a new job; returns the rest of it, for `specs`."""
    light = lightened(spec)
    if light is spec:
        return spec
    items = None if spec.items is None else _put(connection, _pieces(spec.items))
    program = _put(connection, [(0, _encode(spec.program))]) if is_long(spec) else None
    connection.execute(
        "INSERT INTO apart (job_id, spec_bytes, item_count, items, program) VALUES (?, ?, ?, ?, ?)",
        (job_id, encoded_bytes(spec), len(spec.items or ()), items, program),
    )
    return light


def forget_apart(connection: TableConnection, job_id: int) -> None:
    """Deletes what only this job had."""
    rows = connection.execute(
        "DELETE FROM apart WHERE job_id = ? RETURNING items, program", (job_id,)
    ).fetchall()
    for digest in (each for row in rows for each in row if each is not None):
        connection.execute(_DROP, {"digest": digest})


def stored_apart(connection: TableReader, record: JobRecord) -> Apart | None:
    """Returns what the row of a job in `specs` lacks; None if it has all.

    Raises:
        ValueError: it cannot be so.
    """
    row = connection.execute(
        "SELECT spec_bytes, item_count, items IS NOT NULL, program IS NOT NULL FROM apart"
        " WHERE job_id = ?",
        (record.job_id,),
    ).fetchone()
    if row is None:
        return None
    spec_bytes, item_count, items, program = row
    if not isinstance(spec_bytes, int) or spec_bytes < 0:
        raise ValueError(f"a spec cannot have {spec_bytes} bytes")
    if items and item_count != record.spec.count:
        raise ValueError(f"{item_count} items for {record.spec.count} tasks")
    return Apart(spec_bytes=spec_bytes, items=bool(items), program=bool(program))


def with_all_parts(connection: TableReader, record: JobRecord) -> JobRecord:
    """A job with its whole spec, from one with what `specs` has.

    Raises:
        ValueError, TypeError, msgspec.MsgspecError: what is missing cannot be read.
    """
    row = connection.execute(
        "SELECT items, program FROM apart WHERE job_id = ?", (record.job_id,)
    ).fetchone()
    if row is None:
        return record
    spec = record.spec
    items, program = row
    if items is not None:
        found = tuple(
            item
            for (body,) in connection.execute(_PIECES, (items,))
            for item in _items_decoder.decode(body)
        )
        if len(found) != spec.count:
            raise ValueError(f"{len(found)} items for {spec.count} tasks")
        spec = msgspec.structs.replace(spec, items=found)
    if program is not None:
        spec = msgspec.structs.replace(spec, program=_program(connection, record.job_id))
    return msgspec.structs.replace(record, spec=spec)


def item_window(connection: TableReader, job_id: int, index: int) -> ItemWindow | None:
    """Implements `CoreStore.items`; see `with_all_parts` for what it raises."""
    row = connection.execute(_WINDOW, (job_id, index)).fetchone()
    if row is None:
        return None
    first, body, total = row
    found = ItemWindow(first, _items_decoder.decode(body), total)
    return found if found.covers(index) else None


def long_program(connection: TableReader, job_id: int) -> Program | None:
    """The program of a job if it lies apart; see `with_all_parts` for what it raises."""
    [named] = connection.execute(
        "SELECT count(program) FROM apart WHERE job_id = ?", (job_id,)
    ).fetchone()
    return _program(connection, job_id) if named else None


def _program(connection: TableReader, job_id: int) -> Program:
    row = connection.execute(_PROGRAM, (job_id,)).fetchone()
    if row is None:
        raise ValueError("its program is missing")
    return _program_decoder.decode(row[0])


def _pieces(items: tuple[str, ...]) -> Iterator[tuple[int, bytes]]:
    """Cuts items into pieces, each with the index of its first item."""
    for first in range(0, len(items), PIECE_ITEMS):
        piece = items[first : first + PIECE_ITEMS]
        characters = sum(map(len, piece))  # not one by one: nearly all are short
        if characters < PIECE_CHARACTERS:
            yield first, _encode(piece)
            continue
        begin = characters = 0
        for place, item in enumerate(piece, start=1):
            characters += len(item)
            if characters >= PIECE_CHARACTERS or place == len(piece):
                yield first + begin, _encode(piece[begin:place])
                begin, characters = place, 0


def _put(connection: TableConnection, pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """Writes a text in pieces, unless it is there; returns its digest."""
    whole = list(pieces)
    hashed = sha256()
    for _, body in whole:
        hashed.update(body)
    digest = hashed.digest()
    there = connection.execute("SELECT 1 FROM texts WHERE digest = ? LIMIT 1", (digest,)).fetchone()
    if there is None:
        rows: list[tuple[Any, ...]] = [(digest, first, body) for first, body in whole]
        connection.executemany("INSERT INTO texts (digest, first, body) VALUES (?, ?, ?)", rows)
    return digest
