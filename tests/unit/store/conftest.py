"""Stores to be tried: open and empty, and none waits for the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.store import sqlite
from kestrelctl.store.port import CoreStore
from kestrelctl.store.sqlite import SqliteStore


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqliteStore]:
    """One that keeps all that is durable."""
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")
    store = SqliteStore(tmp_path / "data")
    store.open()
    yield store
    store.close()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> CoreStore:
    """One of each kind: they keep what the core goes on from."""
    if request.param == "sqlite":
        found: CoreStore = request.getfixturevalue("whole")
        return found
    store = MemoryStore()
    store.open()
    return store
