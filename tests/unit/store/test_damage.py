"""A row that cannot be: its job is set aside and told of, and all others go on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from store_samples import done, job, waiting

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import (
    FlockPeer,
    Snapshot,
    StoredRecord,
    TokenRecord,
    WorkerRecord,
)
from kestrelctl.core.pool import Pool
from kestrelctl.errors import KestrelError, NotFound, StoreUnusable
from kestrelctl.manager.selection import select_jobs
from kestrelctl.store.rows import USED_COLUMNS
from kestrelctl.store.sqlite.store import DATABASE, SqliteStore


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """A store with three active jobs, and one that has ended."""
    store = SqliteStore(tmp_path / "manager")
    store.open()
    await store.commit([job(n, key=f"key {n}") for n in (1, 2, 3)])
    await store.commit([done(index, 2) for index in range(5)])
    await store.commit([waiting(7, failures=1, losses=1, concluded=3, job_id=2)])
    await store.commit([job(4, state="done", ended_at=5.0, key="key 4"), done(0, 4)])
    await store.commit([WorkerRecord("w")])
    store.close()
    return tmp_path / "manager"


def damage(data_dir: Path, *statements: str) -> None:
    connection = sqlite3.connect(data_dir / DATABASE)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


DAMAGES = [
    "UPDATE specs SET spec = x'7b22617267' WHERE job_id = 2",
    "UPDATE specs SET spec = x'ffff00ff' WHERE job_id = 2",
    "UPDATE specs SET spec = 17 WHERE job_id = 2",
    """UPDATE specs SET spec = '{"program":{"argv":["true"]},"count":"many"}' WHERE job_id = 2""",
    """UPDATE specs SET spec = '{"program":{"argv":[]}}' WHERE job_id = 2""",
    """UPDATE specs SET spec = '{"program":{"argv":["x"]},"count":99,"items":["a"]}'
        WHERE job_id = 2""",
    "UPDATE jobs SET cursor = 'far' WHERE job_id = 2",
    "UPDATE jobs SET cursor = -4 WHERE job_id = 2",
    "UPDATE jobs SET cursor = 4611686018427387904 WHERE job_id = 2",
    "UPDATE jobs SET done = x'00' WHERE job_id = 2",
    "UPDATE jobs SET owner = CAST(x'ff41' AS TEXT) WHERE job_id = 2",
    "UPDATE jobs SET submitted_at = 'yesterday' WHERE job_id = 2",
    "UPDATE jobs SET hold = x'00' WHERE job_id = 2",
    "UPDATE tasks SET state = 9 WHERE job_id = 2 AND idx = 3",
    "UPDATE tasks SET state = -1 WHERE job_id = 2 AND idx = 3",
    "UPDATE tasks SET state = 'done' WHERE job_id = 2 AND idx = 3",
    "UPDATE tasks SET idx = -5 WHERE job_id = 2 AND idx = 3",
    "UPDATE tasks SET idx = 1073741824 WHERE job_id = 2 AND idx = 3",
    "UPDATE tasks SET idx = 'three' WHERE job_id = 2 AND idx = 3",
    "UPDATE tasks SET failures = 'one' WHERE job_id = 2 AND idx = 7",
    "UPDATE tasks SET concluded = -1 WHERE job_id = 2 AND idx = 7",
    "UPDATE tasks SET retried_after = -1 WHERE job_id = 2 AND idx = 7",
]


@pytest.mark.parametrize("statement", DAMAGES)
async def test_a_damaged_job_is_set_aside_and_all_others_go_on(
    data_dir: Path, statement: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage(data_dir, statement)
    store = SqliteStore(data_dir)
    snapshot = store.open()
    pool = Pool(snapshot)
    pool.check()
    assert [found.record.job_id for found in snapshot.jobs] == [1, 3]
    assert snapshot.next_job_id == 5
    assert list(store.damaged) == [2]
    assert [found.job_id for found in store.jobs()] == [1, 3, 4]
    [note] = store.notes()
    assert "1 job cannot be read" in note
    assert note.endswith(": 2")
    assert "job 2 cannot be read" in caplog.text
    with pytest.raises(KestrelError, match="set aside") as caught:
        await select_jobs("2", "ada", pool, store)
    assert not isinstance(caught.value, NotFound)
    assert caught.value.cause
    assert caught.value.hint
    store.close()


def test_a_damaged_job_that_has_ended_is_left_out_of_lists(data_dir: Path) -> None:
    damage(data_dir, "UPDATE heads SET head = x'00' WHERE job_id = 4")
    store = SqliteStore(data_dir)
    store.open()
    assert store.notes() == []
    assert [found.job_id for found in store.jobs()] == [1, 2, 3]
    assert list(store.damaged) == [4]
    store.close()


@pytest.mark.parametrize("table", ["heads", "specs"])
def test_a_job_without_its_spec_is_damaged(data_dir: Path, table: str) -> None:
    damage(data_dir, f"DELETE FROM {table} WHERE job_id IN (2, 4)")
    store = SqliteStore(data_dir)
    store.open()
    if table == "specs":
        assert list(store.damaged) == [2]
        with pytest.raises(KestrelError, match="job 4 cannot be read"):
            store.job(4)
    assert [found.job_id for found in store.jobs()] == [1, 3]
    assert sorted(store.damaged) == [2, 4]
    store.close()


@pytest.mark.parametrize(
    "ask",
    [lambda store: store.job(4), lambda store: store.job_of_key("ada@pool.internal", "key 4")],
    ids=["by id", "by key"],
)
def test_a_damaged_job_is_set_aside_when_it_is_read_whole(
    data_dir: Path, ask: Callable[[SqliteStore], object]
) -> None:
    damage(data_dir, "UPDATE specs SET spec = x'00' WHERE job_id = 4")
    store = SqliteStore(data_dir)
    store.open()
    assert [found.job_id for found in store.jobs()] == [1, 2, 3, 4]
    with pytest.raises(KestrelError, match="job 4 cannot be read"):
        ask(store)
    assert [found.job_id for found in store.jobs()] == [1, 2, 3]
    assert list(store.damaged) == [4]
    store.close()


@pytest.mark.parametrize("spec", ["x'00'", "x'ffff00ff'", "17", "x'7b22617267'"])
def test_a_damaged_spec_does_not_keep_a_store_from_its_next_version(
    data_dir: Path, spec: str
) -> None:
    damage(
        data_dir,
        f"UPDATE specs SET spec = {spec} WHERE job_id IN (2, 4)",
        "DROP TABLE heads",
        "DROP INDEX jobs_untold",
        "DROP INDEX jobs_unmailed",
        "ALTER TABLE jobs DROP COLUMN unmailed",
        "ALTER TABLE jobs DROP COLUMN untold",
        "ALTER TABLE tasks DROP COLUMN retried_after",
        "DROP TABLE settings",
        "DROP TABLE texts",
        "DROP TABLE apart",
        "DROP INDEX jobs_ended",
        "DROP TABLE usage",
        *(f"ALTER TABLE jobs DROP COLUMN {name}" for name in USED_COLUMNS),
        "ALTER TABLE tasks DROP COLUMN memory_step",
        "ALTER TABLE tasks DROP COLUMN least_seconds",
        "ALTER TABLE jobs DROP COLUMN stopped_by",
        "DROP TABLE users",
        "DROP TABLE stored",
        "DROP TABLE flock_peers",
        "DROP TABLE member_events",
        "DROP TABLE members",
        "DROP TABLE handler_lines",
        "DROP TABLE triggers_fired",
        "DROP TABLE trigger_courses",
        "DROP TABLE trigger_moments",
        "ALTER TABLE jobs DROP COLUMN hold",
        "ALTER TABLE tasks DROP COLUMN output_files",
        "ALTER TABLE tasks DROP COLUMN outputs",
        "ALTER TABLE tasks DROP COLUMN stored_seconds",
        "ALTER TABLE tasks DROP COLUMN stdout_stored",
        "ALTER TABLE tasks DROP COLUMN stderr_stored",
        "ALTER TABLE tasks DROP COLUMN stages",
        "DROP TABLE edges",
        "ALTER TABLE jobs DROP COLUMN freed",
        "ALTER TABLE jobs DROP COLUMN settled",
        "ALTER TABLE tasks DROP COLUMN checkpoint",
        "ALTER TABLE jobs DROP COLUMN resumed",
        "ALTER TABLE pool DROP COLUMN term",
        "PRAGMA user_version = 7",
    )
    store = SqliteStore(data_dir)
    assert [found.record.job_id for found in store.open().jobs] == [1, 3]
    assert [found.job_id for found in store.jobs()] == [1, 3]
    assert sorted(store.damaged) == [2, 4]
    store.close()


@pytest.mark.parametrize(
    "value", ["x'00'", "7", """'{"name":"matlab","total":"x"}'""", """'{"name":"idl","total":2}'"""]
)
def test_a_damaged_setting_is_left_out(
    data_dir: Path, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    whole = """('asset', 'seats', '', '{"name":"seats","total":2}')"""
    damage(data_dir, f"INSERT INTO settings VALUES ('asset', 'matlab', '', {value}), {whole}")
    store = SqliteStore(data_dir)
    assert store.open().settings == [TokenRecord("seats", 2)]
    assert "the pool's matlab cannot be read, and counts as not set" in caplog.text
    store.close()


@pytest.mark.parametrize(
    "row",
    [
        "'eve', 'lend', x'00'",
        "'eve', 'lend', '{\"name\": \"eve\"}'",
        "'eve', 'lend', 7",
        '\'eve\', \'lend\', \'{"name": "bob", "direction": "lend", "action": "allow"}\'',
        '\'eve\', \'lend\', \'{"name": "eve", "direction": "borrow", "action": "allow"}\'',
        '\'eve\', x\'ff\', \'{"name": "eve", "direction": "borrow", "action": "deny"}\'',
    ],
)
def test_in_place_of_a_damaged_rule_of_the_flock_all_is_denied(data_dir: Path, row: str) -> None:
    """It may have been the one that kept somebody away."""
    damage(data_dir, f"INSERT INTO settings VALUES ('flock rule', {row})")
    store = SqliteStore(data_dir)
    closed = FlockRule(name="eve", direction="lend", action="deny", order=0)
    assert store.open().settings == [closed]
    store.close()


def test_a_damaged_rule_to_borrow_denies_to_borrow(data_dir: Path) -> None:
    damage(data_dir, "INSERT INTO settings VALUES ('flock rule', 'eve', 'borrow', x'00')")
    store = SqliteStore(data_dir)
    closed = FlockRule(name="eve", direction="borrow", action="deny", order=0)
    assert store.open().settings == [closed]
    store.close()


def test_damaged_pools_of_the_flock_are_left_out(data_dir: Path) -> None:
    rows = "('a', 7, 1.0), ('b', 1, 'x'), (x'ff', 1, 1.0), ('d', 1, 1.0)"
    damage(data_dir, f"INSERT INTO flock_peers VALUES {rows}")
    store = SqliteStore(data_dir)
    assert store.open().flock_peers == [FlockPeer(pool="d", through=True, heard_at=1.0)]
    store.close()


def test_a_damaged_task_that_is_asked_for_is_said_to_be(data_dir: Path) -> None:
    damage(data_dir, "UPDATE tasks SET state = 77 WHERE job_id = 4")
    store = SqliteStore(data_dir)
    store.open()
    with pytest.raises(KestrelError, match="tasks of job 4 cannot be read"):
        store.tasks(4)
    store.close()


async def test_damaged_jobs_do_not_keep_owners_of_others_from_being_told(data_dir: Path) -> None:
    store = SqliteStore(data_dir)
    store.open()
    await store.commit([job(n, state="done", ended_at=5.0, untold=True) for n in range(5, 10)])
    store.close()
    damage(data_dir, "UPDATE heads SET head = x'00' WHERE job_id BETWEEN 5 AND 7")
    store = SqliteStore(data_dir)
    store.open()
    assert [found.job_id for found in store.untold(1)] == [8]
    assert [found.job_id for found in store.untold(3)] == [8, 9]
    assert list(store.damaged) == [5, 6, 7]
    store.close()


async def test_a_damaged_job_stays_in_the_store_as_it_is(data_dir: Path) -> None:
    damage(data_dir, "UPDATE jobs SET cursor = -4 WHERE job_id = 2")
    store = SqliteStore(data_dir)
    store.open()
    await store.commit([job(5), done(0, 5)])
    store.close()
    damage(data_dir, "UPDATE jobs SET cursor = 8 WHERE job_id = 2")
    snapshot = store.open()
    assert [found.record.job_id for found in snapshot.jobs] == [1, 2, 3, 5]
    assert snapshot.jobs[1].record.counts.done == 5
    store.close()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE workers SET ad = x'00ff'", [WorkerRecord("w")]),
        ("UPDATE workers SET worker = x'00ff'", []),
    ],
)
def test_a_damaged_worker_says_again_what_it_offers(
    data_dir: Path, statement: str, found: list[WorkerRecord]
) -> None:
    damage(data_dir, statement)
    store = SqliteStore(data_dir)
    assert store.open().workers == found
    assert store.notes() == []
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM pool",
        "UPDATE pool SET epoch = 'one'",
        "UPDATE pool SET term = 'one'",
        "UPDATE pool SET last_job_id = -1",
        "UPDATE pool SET commits = x'00'",
    ],
)
def test_without_the_pools_own_row_nothing_is_safe(data_dir: Path, statement: str) -> None:
    damage(data_dir, statement)
    with pytest.raises(StoreUnusable, match="damaged") as caught:
        SqliteStore(data_dir).open()
    assert "pool" in (caught.value.cause or "")
    assert "backup" in (caught.value.hint or "")
    assert caught.value.exit_status == 14


@pytest.mark.parametrize(
    "statements",
    [
        ("PRAGMA application_id = 252006674",),
        ("PRAGMA user_version = 0",),
        ("DROP TABLE pool",),
    ],
)
def test_a_database_of_another_program_is_left_alone(
    data_dir: Path, statements: tuple[str, ...]
) -> None:
    damage(data_dir, *statements)
    before = (data_dir / DATABASE).read_bytes()
    with pytest.raises(StoreUnusable, match="no manager's store") as caught:
        SqliteStore(data_dir).open()
    assert caught.value.cause
    assert "--data-dir" in (caught.value.hint or "")
    assert (data_dir / DATABASE).read_bytes() == before


def test_a_snapshot_of_a_sound_store_sets_nothing_aside(data_dir: Path) -> None:
    store = SqliteStore(data_dir)
    snapshot: Snapshot = store.open()
    assert [found.record.job_id for found in snapshot.jobs] == [1, 2, 3]
    assert (store.notes(), dict(store.damaged)) == ([], {})
    store.close()


@pytest.mark.parametrize(
    "what",
    [
        "weight = 'heavy'",
        "weight = -1.0",
        "limits = x'00'",
        "usage = 'much'",
        "usage = 9e999",
        "max_queued = -3",
        "mail = 'ada'",
        "mail = x'00'",
        "max_stored = -2",
        "max_stored = 'much'",
        "max_queued_bytes = 'much'",
    ],
)
def test_a_damaged_user_counts_as_one_of_whom_nothing_is_set(
    data_dir: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    put = (
        "INSERT INTO users (name, weight, member_of, limits, usage, usage_at)"
        " VALUES ('{}', 2.0, '', '{{}}', 0.0, 0.0)"
    )
    damage(
        data_dir,
        put.format("ada"),
        put.format("bob"),
        f"UPDATE users SET {what} WHERE name = 'ada'",
    )
    store = SqliteStore(data_dir)
    assert [user.name for user in store.open().users] == ["bob"]
    assert "user ada counts as one of which nothing is set" in caplog.text
    store.close()


def test_damaged_sums_of_what_is_stored_count_as_nothing(data_dir: Path) -> None:
    put = "INSERT INTO stored (owner, hour, size_bytes) VALUES ({}, {}, {})"
    rows = ["'ada', 1, 'much'", "'ada', 'then', 1", "x'00', 3, 1", "'ada', 4, -1", "'ada', 5, 1"]
    damage(data_dir, *(put.format(*row.split(", ")) for row in rows))
    store = SqliteStore(data_dir)
    assert store.open().stored == [StoredRecord("ada", 5, 1)]
    store.close()
