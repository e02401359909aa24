"""A store that moves from SQLite into PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from postgresqlkit import PostgresqlServer, database_of
from store_samples import FULL_SPEC, done, failed, happening, job, waiting

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.model.records import (
    JobForgotten,
    StoredRecord,
    TokenRecord,
    UserRecord,
    WorkerRecord,
)
from kestrelctl.errors import NotFound, StoreUnusable
from kestrelctl.store import kept_text
from kestrelctl.store.postgresql import moving
from kestrelctl.store.postgresql.moving import MOVED, move
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.store.sqlite.store import DATABASE, SqliteStore

RECORDS: list[Any] = [
    job(1, spec=FULL_SPEC, key="nightly"),
    job(2, state="done", ended_at=5.0, untold=True),
    job(3),
    *(done(index, 3) for index in range(10, 1210)),
    done(0, 2),
    failed(4, 3),
    waiting(5, failures=1, job_id=3),
    happening(4, 3),
    happening(-1, 3),
    WorkerRecord("w", draining=True),
    UserRecord(name="ada", max_running=3),
    StoredRecord("ada", 17, 5),
    TokenRecord("seats", 2),
    MembershipEvent(number=1, at=1.0, kind="join", worker="w1"),
]


@pytest.fixture
async def data_dir(tmp_path: Path) -> Path:
    """A store in SQLite of which something is in most tables."""
    store = SqliteStore(tmp_path / "manager")
    store.open()
    await store.commit(RECORDS)
    await store.commit([JobForgotten(2)])
    store.close()
    return tmp_path / "manager"


def found(store: Any) -> list[Any]:
    """What a store says of all that is in it."""
    ids = store.job_ids()
    return [
        [store.job(job_id) for job_id in ids],
        [store.tasks(job_id, limit=5000) for job_id in ids],
        [store.happenings(job_id) for job_id in ids],
        store.used(ids),
        store.used_by_owner(0),
        store.member_events(limit=9),
        store.members(),
        store.has_forgotten(),
    ]


def moved(data_dir: Path, conninfo: str, password: str = "") -> None:
    move(data_dir, conninfo, lambda line: None, password=password)


async def test_it_moves_into_a_database_that_asks_for_a_password(
    data_dir: Path, server: PostgresqlServer
) -> None:
    moved(data_dir, server.new_database("s3cret"), "s3cret")
    assert (data_dir / MOVED).exists()


async def test_all_is_there_afterwards(data_dir: Path, conninfo: str) -> None:
    before = SqliteStore(data_dir)
    expected, said = before.open(), found(before)
    before.close()
    moved(data_dir, conninfo)
    assert not (data_dir / DATABASE).exists()
    assert (data_dir / MOVED).exists()
    store = PostgresqlStore(data_dir, conninfo, "pool")
    snapshot = store.open()
    assert found(store) == said
    assert store.notes() == [note for note in store.notes() if "fsync" in note]
    assert (snapshot.epoch, snapshot.secret) == (expected.epoch + 1, expected.secret)
    assert snapshot.jobs == expected.jobs
    assert snapshot.settings == expected.settings
    assert snapshot.users == expected.users
    await store.commit([happening(1, 3)])
    assert store.happenings(3)[-1] == happening(1, 3)
    store.close()


def interrupt(data_dir: Path, conninfo: str, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Moves, but is interrupted after so many pages."""
    commit, pages = moving.Batch.commit, []

    def interrupted(batch: moving.Batch) -> None:
        if len(pages) == after:
            raise KeyboardInterrupt
        pages.append(1)
        commit(batch)

    with monkeypatch.context() as patch:
        patch.setattr(moving.Batch, "commit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            moved(data_dir, conninfo)
    assert (data_dir / DATABASE).exists()


async def test_it_goes_on_where_it_was_interrupted(
    data_dir: Path, conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "PAGE_ROWS", 100)
    interrupt(data_dir, conninfo, monkeypatch, 9)
    with pytest.raises(StoreUnusable, match="not whole"):
        PostgresqlStore(data_dir, conninfo, "pool").open()
    interrupt(data_dir, conninfo, monkeypatch, 9)
    moved(data_dir, conninfo)
    store = PostgresqlStore(data_dir, conninfo, "pool")
    store.open()
    assert store.job_ids() == [1, 3]
    assert [len(store.tasks(job_id, limit=9999)) for job_id in (1, 3)] == [0, 1202]
    store.close()


async def test_what_changed_since_it_was_interrupted_is_moved(
    data_dir: Path, conninfo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "PAGE_ROWS", 100)
    interrupt(data_dir, conninfo, monkeypatch, 15)
    before = SqliteStore(data_dir)
    before.open()
    await before.commit([job(3, state="done"), failed(7, 3)])
    before.close()
    moved(data_dir, conninfo)
    store = PostgresqlStore(data_dir, conninfo, "pool")
    assert [each.record.job_id for each in store.open().jobs] == [1]
    assert failed(7, 3) in store.tasks(3, limit=9999)
    store.close()


async def test_a_move_that_lacks_only_its_last_step_is_finished(
    data_dir: Path, conninfo: str
) -> None:
    moved(data_dir, conninfo)
    (data_dir / MOVED).rename(data_dir / DATABASE)
    moved(data_dir, conninfo)
    assert not (data_dir / DATABASE).exists()


async def test_a_database_that_holds_a_store_is_left_alone(
    data_dir: Path, conninfo: str, tmp_path: Path, server: PostgresqlServer
) -> None:
    other = PostgresqlStore(tmp_path / "other", conninfo, "pool")
    other.open()
    await other.commit([job(9)])
    other.close()
    with pytest.raises(StoreUnusable, match="another store"):
        moved(data_dir, conninfo)
    assert server.run("SELECT job_id FROM jobs", database=database_of(conninfo)) == [(9,)]
    assert (data_dir / DATABASE).exists()


def test_the_texts_beside_it_are_moved(data_dir: Path, conninfo: str, tmp_path: Path) -> None:
    """Accounts that must not outlive their time, and triggers that somebody has switched off."""
    for name in kept_text.ALL:
        (data_dir / name).write_text(f"of {name}\n")
    move(data_dir, conninfo, print)
    store = PostgresqlStore(tmp_path / "new", conninfo, "pool.internal")
    store.open()
    assert [store.kept_text(name).read() for name in kept_text.ALL] == [
        f"of {name}\n" for name in kept_text.ALL
    ]
    store.close()


def test_without_a_store_there_is_nothing_to_move(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        moved(tmp_path, "service=none")
