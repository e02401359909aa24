"""Items and long programs of jobs in a store: apart from specs, and equal ones once.

`apart` says for each job that has some what its row in `specs` lacks, and `texts` has that, by the
SHA-256 of its JSON: items in pieces that can be read one by one, a program as one piece. What no
job names any more is deleted with the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

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
_ASKED_AT_ONCE = 50
_STORED = f"SELECT DISTINCT digest FROM texts WHERE digest IN ({', '.join('?' * _ASKED_AT_ONCE)})"
_PUT_ROW = """
    INSERT INTO apart (job_id, spec_bytes, item_count, items, program) VALUES (?, ?, ?, ?, ?)
"""
_DROP = """
    DELETE FROM texts WHERE digest = :digest
        AND NOT EXISTS (SELECT 1 FROM apart WHERE items = :digest)
        AND NOT EXISTS (SELECT 1 FROM apart WHERE program = :digest)
"""


class _Text(NamedTuple):
    """A text in pieces, each with the index of its first item."""

    digest: bytes
    pieces: list[tuple[int, bytes]]


class _Parts(NamedTuple):
    """The long parts of a spec."""

    items: _Text | None
    program: _Text | None


class LongParts:
    """The long parts of the specs of jobs that begin and end in a batch.

    The store is asked once which of them it has.

    Args:
        jobs: the records with which jobs begin.
    """

    def __init__(self, connection: TableReader, jobs: Iterable[JobRecord]) -> None:
        self._parts = {job.job_id: _parts(job.spec) for job in jobs if is_apart(job.spec)}
        wanted = [text.digest for parts in self._parts.values() for text in parts if text]
        self._stored: set[bytes] = set()
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            some = wanted[start : start + _ASKED_AT_ONCE]
            filled = some + some[-1:] * (_ASKED_AT_ONCE - len(some))  # one statement for any number
            self._stored |= {bytes(row[0]) for row in connection.execute(_STORED, filled)}

    def put(self, connection: TableConnection, job_id: int, spec: JobSpec) -> JobSpec:
        """Writes those of one job; returns the rest of its spec, for `specs`."""
        parts = self._parts.pop(job_id, None)
        if parts is None:
            return spec
        for text in parts:
            if text is not None and text.digest not in self._stored:
                _insert(connection, text)
                self._stored.add(text.digest)
        items, program = (text.digest if text is not None else None for text in parts)
        connection.execute(
            _PUT_ROW, (job_id, encoded_bytes(spec), len(spec.items or ()), items, program)
        )
        return lightened(spec)

    def forget(self, connection: TableConnection, job_id: int) -> None:
        """Deletes what only this job had."""
        rows = connection.execute(
            "DELETE FROM apart WHERE job_id = ? RETURNING items, program", (job_id,)
        ).fetchall()
        for digest in (bytes(each) for row in rows for each in row if each is not None):
            connection.execute(_DROP, {"digest": digest})
            if digest in self._stored and not _is_stored(connection, digest):
                self._stored.remove(digest)


def _parts(spec: JobSpec) -> _Parts:
    return _Parts(
        None if spec.items is None else _text(_pieces(spec.items)),
        _text([(0, _encode(spec.program))]) if is_long(spec) else None,
    )


def is_apart(spec: JobSpec) -> bool:
    """Whether a part of a whole spec is kept apart."""
    return lightened(spec) is not spec


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


def _text(pieces: Iterable[tuple[int, bytes]]) -> _Text:
    whole = list(pieces)
    hashed = sha256()
    for _, body in whole:
        hashed.update(body)
    return _Text(hashed.digest(), whole)


def _is_stored(connection: TableReader, digest: bytes) -> bool:
    found = connection.execute("SELECT 1 FROM texts WHERE digest = ? LIMIT 1", (digest,))
    return found.fetchone() is not None


def _insert(connection: TableConnection, text: _Text) -> None:
    rows: list[tuple[Any, ...]] = [(text.digest, first, body) for first, body in text.pieces]
    connection.executemany("INSERT INTO texts (digest, first, body) VALUES (?, ?, ?)", rows)
