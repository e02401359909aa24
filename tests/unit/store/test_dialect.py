"""The store's statements in PostgreSQL's words."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import psycopg
import pytest
from postgresqlkit import PostgresqlServer, database_of

from kestrelctl.store import (
    edges,
    event_rows,
    reading,
    rule_rows,
    setting_rows,
    share_rows,
    writing,
)
from kestrelctl.store.postgresql.dialect import array, for_many_rows, glob_as_regex, translated
from kestrelctl.store.postgresql.exact_text import restored, storable
from kestrelctl.store.postgresql.schema import OF_SEVERAL
from kestrelctl.store.postgresql.store import PostgresqlStore


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("SELECT a FROM t WHERE b = ? AND c < :d", "SELECT a FROM t WHERE b = %s AND c < %(d)s"),
        ("SELECT 7 % 2", "SELECT 7 %% 2"),
        ("SELECT a::text FROM t WHERE b = :b", "SELECT a::text FROM t WHERE b = %(b)s"),
        ("x FROM tasks INDEXED BY tasks_not_done WHERE", "x FROM tasks WHERE"),
        ("ended_at IS ?", "ended_at IS NOT DISTINCT FROM %s"),
        ("ended_at IS NOT NULL", "ended_at IS NOT NULL"),
        ("SELECT max(idx) FROM tasks", "SELECT max(idx) FROM tasks"),
        ("SET last_job_id = max(last_job_id, ?)", "SET last_job_id = greatest(last_job_id, %s)"),
        ("max(0.0, at - (SELECT b FROM c))", "greatest(0.0, at - (SELECT b FROM c))"),
        (
            "job_id IN (SELECT value FROM json_each(?))",
            "job_id = ANY (ARRAY(SELECT json_array_elements_text(%s::json))::bigint[])",
        ),
        (
            "state IN (SELECT value FROM json_each(?))",
            "state = ANY (ARRAY(SELECT json_array_elements_text(%s::json))::text[])",
        ),
        (
            "INSERT OR IGNORE INTO forgotten (job_id) VALUES (?)",
            "INSERT INTO forgotten (job_id) VALUES (%s) ON CONFLICT DO NOTHING",
        ),
        (
            "INSERT OR REPLACE INTO edges (child, first, ending) VALUES (?, ?, ?)",
            "INSERT INTO edges (child, first, ending) VALUES (%s, %s, %s)"
            " ON CONFLICT (child, first) DO UPDATE SET ending = excluded.ending",
        ),
    ],
)
def test_what_it_says_otherwise_is_translated(ours: str, theirs: str) -> None:
    assert translated(ours).text == theirs


def test_many_rows_are_inserted_by_one_statement() -> None:
    many = for_many_rows("INSERT OR REPLACE INTO edges (child, first, ending) VALUES (?, ?, ?)")
    assert many is not None
    assert many.text == (
        "INSERT INTO edges (child, first, ending)"
        " SELECT * FROM unnest(%s::BIGINT[], %s::BIGINT[], %s::TEXT[])"
        " ON CONFLICT (child, first) DO UPDATE SET ending = excluded.ending"
    )
    assert many.key == (0, 1)
    assert for_many_rows("UPDATE jobs SET cursor = ? WHERE job_id = ?") is None


def test_rows_of_which_none_replaces_another_are_all_inserted() -> None:
    many = for_many_rows("INSERT INTO edges (child, first, last, ending) VALUES (?, ?, ?, ?)")
    assert many is not None
    assert many.key == ()


VALUES = [
    ("BIGINT", [1, -(2**62), None]),
    ("BOOLEAN", [True, False, None]),
    ("DOUBLE PRECISION", [0.1, 1_700_000_000.123456, -1e-300, float("inf"), 3.0, None]),
    ("TEXT", ["", "NULL", None, '{"a", \\b}', "it's", "ü ☃ 🐦", "a\nb\tc", " "]),
    ("BYTEA", [b"", b"\0\xff\\", None, b"'\""]),
]


@pytest.mark.parametrize(("kind", "column"), VALUES)
def test_a_column_comes_back_as_it_was(
    server: PostgresqlServer, conninfo: str, kind: str, column: list[object]
) -> None:
    with psycopg.connect(conninfo, cursor_factory=psycopg.ClientCursor) as link:
        rows = link.execute(
            f"SELECT * FROM unnest(%s::{kind}[])".encode(), (array(column, kind),)
        ).fetchall()
    assert [value for (value,) in rows] == column


@pytest.mark.parametrize(
    "text",
    ["", "a", "\0", "\uf8f0", "\uf8f00\0\uf8f01", "a\0\0b\uf8f0"],
    ids=["nothing", "a letter", "a NUL", "the escape", "both", "two NULs"],
)
def test_every_text_can_be_held(text: str) -> None:
    assert "\0" not in storable(text)
    assert restored(storable(text)) == text


GLOBS = ["*", "night*", "a?c", "[ab]c", "[^ab]c", "[a-c]*", "[c-a]", "[]x]", "[^]]", "[a-]", "[",
         "[a", "a.c", "a\\d", "(a|b)", "a+", "^a$", "[.]", "[[]", "[\\]", "*\n*", "ü?"]  # fmt: skip
NAMES = ["", "night-a", "abc", "a.c", "ac", "bc", "cc", "c", "]", "x", "-", "a-", "[", "a\\d",
         "(a|b)", "a+", "aa", "^a$", ".", "\\", "a\nb", "üb", "NIGHT"]  # fmt: skip


def test_globs_mean_what_they_mean_to_sqlite(server: PostgresqlServer) -> None:
    with closing(sqlite3.connect(":memory:")) as ours, psycopg.connect(server.conninfo()) as link:
        for glob in GLOBS:
            pairs = [(name, glob) for name in NAMES]
            expected = [ours.execute("SELECT ? GLOB ?", pair).fetchone() == (1,) for pair in pairs]
            rows = link.execute(
                "SELECT name ~ %s FROM unnest(%s::text[]) AS name", (glob_as_regex(glob), NAMES)
            )
            assert [fits for (fits,) in rows] == expected, glob


#: What one store has and the other does not need.
ONLY_POSTGRESQL = {"pool": {"name", "schema_version", "moving_from", "connection", "is_writers"}}
ROWIDS = {"gaps", "happenings"}


async def test_both_stores_have_the_same_columns(
    in_postgresql: PostgresqlStore, in_sqlite: object, server: PostgresqlServer
) -> None:
    database = database_of(in_postgresql._conninfo)
    theirs = server.run(
        "SELECT table_name, column_name, is_nullable FROM information_schema.columns"
        " WHERE table_schema = 'public'",
        database=database,
    )
    found: dict[str, set[tuple[str, bool]]] = {}
    for table, column, nullable in theirs:
        if table in OF_SEVERAL:
            continue
        extra = ONLY_POSTGRESQL.get(table, set())
        if column not in extra and not (column == "rowid" and table in ROWIDS):
            found.setdefault(table, set()).add((column, nullable == "YES"))
    connection = in_sqlite._reader  # type: ignore[attr-defined]
    expected: dict[str, set[tuple[str, bool]]] = {}
    for (table,) in connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall():
        for _, column, _, not_null, _, key in connection.execute(f"PRAGMA table_info({table})"):
            expected.setdefault(table, set()).add((column, not (not_null or key)))
    assert found == expected


SHARED = (edges, event_rows, reading, rule_rows, setting_rows, share_rows, writing)
STATEMENTS = [
    text
    for module in SHARED
    for text in vars(module).values()
    if isinstance(text, str) and re.match(r"\s*(INSERT|UPDATE|DELETE|SELECT)\b", text)
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_nothing_of_sqlite_is_left_in_a_translation(statement: str) -> None:
    words = translated(statement).text
    assert not re.search(r"OR REPLACE|OR IGNORE|json_each|GLOB|INDEXED", words)
