"""Moves a store from SQLite into PostgreSQL; interrupted, it goes on where it was.

Rows are copied in the order of their keys, a page with each commit, so that the last key that is
there says how far a table is. Until all is there, no manager starts on it; and if the SQLite store
has gone on since a move was interrupted, it begins anew. Last, the database in SQLite is renamed,
so that no manager starts on what is out of date.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from kestrelctl.errors import NotFound, StoreUnusable
from kestrelctl.store import kept_text
from kestrelctl.store.directory import claim
from kestrelctl.store.opening import must_be_ours, must_be_whole
from kestrelctl.store.postgresql import session
from kestrelctl.store.postgresql.batch import Batch
from kestrelctl.store.postgresql.opening import make_tables
from kestrelctl.store.postgresql.plain import PlainLink
from kestrelctl.store.postgresql.schema import TABLES
from kestrelctl.store.postgresql.session import Link, explained
from kestrelctl.store.sqlite.errors import explained as explained_by_sqlite
from kestrelctl.store.sqlite.migrations import migrate
from kestrelctl.store.sqlite.store import DATABASE

#: The rows that are copied with one commit.
PAGE_ROWS = 500
#: What is left of the store in SQLite, beside where it was.
MOVED = f"{DATABASE}.moved"

_NUMBERS = "epoch, last_job_id, secret, commits, term"


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A store that was moved.

    Attributes:
        database: where it is now.
        jobs: how many the store remembers.
        kept: the file that is left in SQLite.
    """

    database: str
    jobs: int
    kept: str


def move(data_dir: Path, conninfo: str, say: Callable[[str], None], *, password: str = "") -> Moved:
    """Moves the store of a manager that does not run.

    Args:
        say: called with a line as often as a table is there.
        password: of the role, if PostgreSQL's own library does not find it.

    Raises:
        NotFound: there is no store in SQLite.
        StoreUnusable: the database holds another store, or the one in SQLite is damaged.
        KestrelError: the manager runs, or the database cannot be used.
    """
    source = data_dir / DATABASE
    if not source.exists():
        raise NotFound(f"there is no store in {data_dir}", hint="--data-dir")
    conninfo = session.conninfo_of(conninfo)
    database = session.where(conninfo)
    lock = claim(data_dir)
    try:
        with (
            explained_by_sqlite(source),
            closing(sqlite3.connect(source, isolation_level=None)) as ours,
            explained(database),
            closing(session.connect(conninfo, password)) as link,
        ):
            must_be_ours(ours, source)
            migrate(ours, source)
            must_be_whole(ours, source)
            ours.text_factory = lambda raw: raw.decode(errors="replace")
            session.must_serve(link, conninfo)
            _copy(ours, link, database, say)
            _copy_texts(data_dir, link)
            # Empties the log into the database, so that one file is all.
            ours.execute("PRAGMA journal_mode = DELETE")
            [jobs] = ours.execute("SELECT count(*) FROM jobs").fetchone()
        os.rename(source, data_dir / MOVED)
    finally:
        os.close(lock)
    return Moved(database=database, jobs=jobs, kept=str(data_dir / MOVED))


def _copy(ours: sqlite3.Connection, link: Link, database: str, say: Callable[[str], None]) -> None:
    numbers = ours.execute(f"SELECT {_NUMBERS} FROM pool").fetchone()
    commits = numbers[3]
    make_tables(link, "", database)
    plain = PlainLink(link)
    there = plain.execute(f"SELECT {_NUMBERS} FROM pool").fetchone()
    if there == numbers:
        return  # it was moved, and only its old file was still to be renamed
    [moving_from] = plain.execute("SELECT moving_from FROM pool").fetchone()
    if moving_from is None and there[3]:
        raise StoreUnusable(
            "the database holds another store already",
            cause=f"{database} has counted {there[3]:,} commits of a manager",
            hint="move into an empty database",
        )
    if moving_from != commits:
        for name in _names():
            plain.execute(f"TRUNCATE {name}")
        plain.execute("UPDATE pool SET moving_from = ?", (commits,))
    for name in _names():
        rows = sum(len(page) for page in _pages(ours, link, name))
        if rows:
            say(f"{name}: {rows:,} rows")
    with link.transaction():
        for name in ("happenings", "gaps"):
            plain.execute(
                f"SELECT setval(pg_get_serial_sequence('{name}', 'rowid'),"
                f" (SELECT coalesce(max(rowid), 0) + 1 FROM {name}), false)"
            )
        plain.execute(
            "UPDATE pool SET epoch = ?, last_job_id = ?, secret = ?, commits = ?, term = ?,"
            " moving_from = NULL",
            numbers,
        )


def _copy_texts(data_dir: Path, link: Link) -> None:
    for name in kept_text.ALL:
        if text := kept_text.TextFile(data_dir / name).read():
            link.execute(
                "INSERT INTO kept_texts (name, content) VALUES (%s, %s)"
                " ON CONFLICT (name) DO UPDATE SET content = excluded.content",
                (name, text),
            )


def _names() -> list[str]:
    return [name for name in TABLES if name != "pool"]


def _pages(ours: sqlite3.Connection, link: Link, name: str) -> Iterator[Sequence[Any]]:
    """Copies what a table lacks, and yields each page that was copied."""
    table = TABLES[name]
    columns = ", ".join(table.columns)
    key = table.key or ("rowid",)
    keys, marks = ", ".join(key), ", ".join("?" for _ in key)
    backwards = ", ".join(f"{each} DESC" for each in key)
    last = (
        PlainLink(link)
        .execute(f"SELECT {keys} FROM {name} ORDER BY {backwards} LIMIT 1")
        .fetchone()
    )
    places = [list(table.columns).index(each) for each in key]
    insert = f"INSERT INTO {name} ({columns}) VALUES ({', '.join('?' for _ in table.columns)})"
    while True:
        above = f"WHERE ({keys}) > ({marks})" if last is not None else ""
        page = ours.execute(
            f"SELECT {columns} FROM {name} {above} ORDER BY {keys} LIMIT ?",
            (*(last or ()), PAGE_ROWS),
        ).fetchall()
        if not page:
            return
        batch = Batch(link)
        batch.executemany(insert, page)
        batch.commit()
        yield page
        last = tuple(page[-1][place] for place in places)
