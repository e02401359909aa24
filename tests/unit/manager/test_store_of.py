"""Which store a manager has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kestrelctl.errors import MissingTool, UsageError
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.store_of import store_of
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.store.sqlite import DATABASE, SqliteStore


def options(directory: Path, postgresql: str = "") -> ManagerOptions:
    return ManagerOptions(
        domain="pool", secret_file=Path("s"), data_dir=directory, postgresql=postgresql
    )


def test_it_is_sqlite_unless_a_postgresql_is_named(tmp_path: Path) -> None:
    assert isinstance(store_of(options(tmp_path)), SqliteStore)
    assert isinstance(store_of(options(tmp_path, "service=kestrel")), PostgresqlStore)


def test_jobs_in_sqlite_are_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    with pytest.raises(UsageError, match="leave it behind") as caught:
        store_of(options(tmp_path, "service=kestrel"))
    assert "manager migrate" in str(caught.value.hint)


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingTool) as caught:
        store_of(options(tmp_path, "service=kestrel"))
    assert "psycopg[binary]" in str(caught.value.hint)
