"""Stores to be tried: open and empty, and none waits for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from postgresqlkit import PostgresqlServer, running_server

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.store.port import CoreStore, Store
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.store.sqlite import store as sqlite
from kestrelctl.store.sqlite.store import SqliteStore

POOL = "pool.internal"


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresqlServer]:
    """A PostgreSQL for all tests of a process; each makes a database of its own."""
    with running_server() as found:
        yield found


@pytest.fixture
def conninfo(server: PostgresqlServer) -> str:
    """How a manager connects to a database that has no tables yet."""
    return server.new_database()


@pytest.fixture
def in_postgresql(tmp_path: Path, conninfo: str) -> Iterator[PostgresqlStore]:
    store = PostgresqlStore(tmp_path / "postgresql", conninfo, POOL)
    store.open()
    yield store
    store.close()


@pytest.fixture
def in_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")
    store = SqliteStore(tmp_path / "data")
    store.open()
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def whole(request: pytest.FixtureRequest) -> Store:
    """One of each kind that keeps all that is durable."""
    found: Store = request.getfixturevalue(f"in_{request.param}")
    return found


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> CoreStore:
    """One of each kind: they keep what the core goes on from."""
    if request.param == "memory":
        store = MemoryStore()
        store.open()
        return store
    found: CoreStore = request.getfixturevalue(f"in_{request.param}")
    return found
