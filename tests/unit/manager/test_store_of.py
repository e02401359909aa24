"""Which store a manager has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from postgresqlkit import running_server

from kestrelctl.errors import MissingTool, UsageError
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.store_of import store_of
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.store.sqlite.store import DATABASE, SqliteStore


def options(
    directory: Path, postgresql: str = "", password_file: Path | None = None
) -> ManagerOptions:
    return ManagerOptions(
        domain="pool",
        secret_file=Path("s"),
        data_dir=directory,
        postgresql=postgresql,
        postgresql_password_file=password_file,
    )


def test_it_is_sqlite_unless_a_postgresql_is_named(tmp_path: Path) -> None:
    assert isinstance(store_of(options(tmp_path)), SqliteStore)
    assert isinstance(store_of(options(tmp_path, "service=kestrel")), PostgresqlStore)


def test_jobs_in_sqlite_are_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    with pytest.raises(UsageError, match="leave it behind") as caught:
        store_of(options(tmp_path, "service=kestrel"))
    assert "manager migrate" in str(caught.value.hint)


def test_the_password_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    file.chmod(0o640)
    with running_server() as server:
        store = store_of(options(tmp_path, server.new_database("s3cret"), file))
        store.open()
        store.close()


@pytest.mark.parametrize("content", [None, "\n", b"\xff"])
def test_a_file_without_a_password_is_told(content: str | bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match=str(file)):
        store_of(options(tmp_path, "service=kestrel", file))


def test_a_password_is_for_a_postgresql_alone(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is for a store in PostgreSQL"):
        store_of(options(tmp_path, password_file=tmp_path / "password"))


def test_a_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingTool) as caught:
        store_of(options(tmp_path, "service=kestrel"))
    assert "psycopg[binary]" in str(caught.value.hint)
