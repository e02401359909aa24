"""A whole store for managers that are played: what only people are shown is on SQLite alone."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from kestrelctl.core.model.records import Snapshot
from kestrelctl.errors import StoreFull
from kestrelctl.store.port import StoreRecord
from kestrelctl.store.sqlite import store as sqlite
from kestrelctl.store.sqlite.migrations import migrate
from kestrelctl.store.sqlite.store import SqliteStore


class AtOnce:
    """The twin of a `ThreadPoolExecutor` that has done what it is given when it returns."""

    def __init__(self, **_how: object) -> None:
        """It has no threads."""

    def submit(self, work: Callable[[], None]) -> Future[None]:
        done: Future[None] = Future()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self) -> None:
        """Nothing is left."""


@contextmanager
def hurried() -> Iterator[None]:
    """A store that is opened or closed meanwhile waits for no disk, and gets no thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "SYNCHRONOUS", "OFF")
        patch.setattr(sqlite, "ThreadPoolExecutor", AtOnce)
        patch.setattr(os, "fsync", lambda file: None)
        yield


@cache
def new_database() -> bytes:
    """One that no manager has opened, to be copied: it is made through all earlier versions."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / sqlite.DATABASE
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            migrate(connection, path)
        return path.read_bytes()


class QuickStore(SqliteStore):
    """SQLite that waits for no disk and needs no thread, so that commits take no time.

    Opening it again shows what a restarted manager would find, as of a `MemoryStore`.

    Attributes:
        at: seconds since the epoch, by its clock.
        full: set it to make commits fail, as they do on a full disk.
    """

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, lambda: self.at)
        self.at = 0.0
        self.full = False

    def open(self) -> Snapshot:
        self.close()
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_bytes(new_database())
        with hurried():
            return super().open()

    def close(self) -> None:
        with hurried():
            super().close()

    async def commit(
        self, records: Sequence[StoreRecord], on_delay: Callable[[str], None] | None = None
    ) -> None:
        if self.full:
            raise StoreFull(cause="the store was told to be full")
        await super().commit(records, on_delay)
