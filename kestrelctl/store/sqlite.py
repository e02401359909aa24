"""The store of one manager on one machine: SQLite, in the manager's data directory.

Rows are inserted in the calling thread, because `executemany` in another one would wait for the
interpreter lock at each row; only the commit, which waits for the disk, has a thread of its own.
Reads go through a second connection: they see what is durable, and never wait for a commit.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from kestrelctl.core.model.records import Happening, JobRecord, Record, Snapshot, TaskRecord
from kestrelctl.core.model.task_state import TaskState
from kestrelctl.store import reading
from kestrelctl.store.directory import claim, create_private
from kestrelctl.store.migrations import migrate
from kestrelctl.store.port import Statistics
from kestrelctl.store.sqlite_errors import explained
from kestrelctl.store.writing import delete_forgotten, write

DATABASE = "kestrel.db"

#: A commit waits for the disk. https://www.sqlite.org/pragma.html#pragma_synchronous
SYNCHRONOUS = "FULL"

#: How long to wait for another program that has the database locked.
LOCKED_SECONDS = 1.0


class SqliteStore:
    """Promises what `Store` says, also when the process is killed or the machine loses power."""

    def __init__(self, data_dir: Path) -> None:
        """Does nothing yet.

        Args:
            data_dir: this manager's alone, on a local disk; `open` makes it if there is none.
        """
        self.path = data_dir / DATABASE
        self._lock: int | None = None
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._connections: list[sqlite3.Connection] = []
        self._thread: ThreadPoolExecutor
        self._ending: Future[None] | None = None
        self._commits = 0
        self._records = 0
        self._commit_seconds = 0.0

    def open(self) -> Snapshot:
        self._lock = claim(self.path.parent)
        try:
            create_private(self.path)
            with explained(self.path):
                self._writer = self._connect()
                self._writer.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                migrate(self._writer, self.path)
                self._writer.execute("PRAGMA journal_mode = WAL")
                self._writer.execute("UPDATE pool SET epoch = epoch + 1")
                self._reader = self._connect()
                snapshot = reading.snapshot(self._reader)
        except BaseException:
            self._let_go()
            raise
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._commits = self._records = 0
        self._commit_seconds = 0.0
        return snapshot

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=LOCKED_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._connections.append(connection)
        return connection

    async def commit(self, records: Sequence[Record]) -> None:
        assert self._ending is None or self._ending.done(), "one commit at a time"
        if not records:
            return
        started = time.perf_counter()
        with explained(self.path):
            self._write(records)
            self._ending = self._thread.submit(self._end)
            try:
                await asyncio.shield(asyncio.wrap_future(self._ending))
            except asyncio.CancelledError:
                wait([self._ending])  # The next transaction must not begin inside this one.
                raise
        self._commits += 1
        self._commit_seconds += time.perf_counter() - started
        self._records += len(records)

    def _write(self, records: Sequence[Record]) -> None:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            write(self._writer, records)
        except BaseException:
            self._writer.rollback()
            raise

    def _end(self) -> None:
        """The part of a commit that runs in the thread."""
        try:
            delete_forgotten(self._writer)
            self._writer.commit()
        except BaseException:
            self._writer.rollback()
            raise

    def jobs(
        self,
        *,
        ids: Sequence[int] | None = None,
        states: Sequence[str] = (),
        owner: str | None = None,
        limit: int = 100,
    ) -> list[JobRecord]:
        with explained(self.path):
            return reading.jobs(self._reader, ids, states, owner, limit)

    def job_of_key(self, owner: str, key: str) -> JobRecord | None:
        with explained(self.path):
            return reading.job_of_key(self._reader, owner, key)

    def tasks(
        self,
        job_id: int,
        *,
        states: Sequence[TaskState] = (),
        after: int = -1,
        limit: int = 1000,
        indexes: Sequence[int] = (),
    ) -> list[TaskRecord]:
        with explained(self.path):
            return reading.tasks(self._reader, job_id, states, after, limit, indexes)

    def ended_badly(self, job_id: int, indexes: Sequence[int] = ()) -> list[tuple[int, str]]:
        with explained(self.path):
            return reading.ended_badly(self._reader, job_id, indexes)

    def happenings(
        self, job_id: int, *, indexes: Sequence[int] = (), limit: int = 1000
    ) -> list[Happening]:
        with explained(self.path):
            return reading.happenings(self._reader, job_id, indexes, limit)

    def statistics(self) -> Statistics:
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return Statistics(
            commits=self._commits,
            commit_seconds=self._commit_seconds,
            records=self._records,
            bytes_on_disk=sum(file.stat().st_size for file in files if file.exists()),
        )

    def close(self) -> None:
        if self._lock is not None:
            self._thread.shutdown()
            self._let_go()

    def _let_go(self) -> None:
        while self._connections:
            self._connections.pop().close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
