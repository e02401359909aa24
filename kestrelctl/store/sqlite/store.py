"""The store of one manager on one machine: SQLite, in the manager's data directory.

Rows are inserted in the calling thread, because `executemany` in another one would wait for the
interpreter lock at each row; only the commit, which waits for the disk, has a thread of its own.
Reads go through a second connection: they see what is durable, and never wait for a commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

from kestrelctl import clock
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.seal import SECRET_BYTES
from kestrelctl.errors import StoreUnusable
from kestrelctl.store import reading
from kestrelctl.store.directory import check_path, claim, create_private, unusable
from kestrelctl.store.item_window import ItemWindow
from kestrelctl.store.kept_text import KeptText, TextFile
from kestrelctl.store.mark import Mark, Reached, read_mark
from kestrelctl.store.opening import Gap, begin_epoch, gaps, must_be_ours, must_be_whole
from kestrelctl.store.port import Reads, Statistics, StoreRecord, at_hand
from kestrelctl.store.sqlite.errors import explained
from kestrelctl.store.sqlite.migrations import migrate
from kestrelctl.store.table_reads import TableReads
from kestrelctl.store.writing import delete_forgotten, write

log = logging.getLogger(__name__)

T = TypeVar("T")

DATABASE = "kestrel.db"

#: A commit waits for the disk. https://www.sqlite.org/pragma.html#pragma_synchronous
SYNCHRONOUS = "FULL"

_COUNT_COMMIT = """
    UPDATE pool SET commits = commits + 1 WHERE epoch = ? RETURNING commits, epoch, last_job_id
"""

#: How long to wait for another program that has the database locked.
LOCKED_SECONDS = 1.0


def _text(raw: bytes) -> str:
    """Decodes a damaged text as far as it can be read; otherwise SQLite would end the query."""
    return raw.decode(errors="replace")


class SqliteStore(TableReads):
    """Keeps the promises of `Store`, also if the process is killed or the machine loses power."""

    leadership = None

    def __init__(self, data_dir: Path, now: Callable[[], float] | None = None) -> None:
        """Does nothing yet.

        Args:
            data_dir: this manager's alone, on a local disk; `open` makes it if there is none.
            now: seconds since the epoch; None for the clock of the machine.
        """
        super().__init__()
        self._now = now or (lambda: clock.wall())
        self.path = data_dir / DATABASE
        self._lock: int | None = None
        self._writer: sqlite3.Connection
        self._reader: sqlite3.Connection
        self._connections: list[sqlite3.Connection] = []
        self._thread: ThreadPoolExecutor
        self._ending: Future[None] | None = None
        self._mark: Mark | None = None
        self._epoch = 0
        self._gaps: list[Gap] = []
        self._commits = 0
        self._records = 0
        self._commit_seconds = 0.0

    def open(self) -> Snapshot:
        check_path(self.path)
        self._lock = claim(self.path.parent)
        try:
            create_private(self.path)
            with explained(self.path):
                self._writer = self._connect()
                self._writer.execute(f"PRAGMA synchronous = {SYNCHRONOUS}")
                must_be_ours(self._writer, self.path)
                migrate(self._writer, self.path)
                self._writer.execute("PRAGMA journal_mode = WAL")
                must_be_whole(self._writer, self.path)
                reached = self._begin_epoch()
                self._reader = self._connect()
                self._reader.text_factory = _text
                self._damaged = {}
                snapshot = reading.snapshot(self._reader, self._set_aside)
            self._epoch = reached.epoch
        except BaseException:
            self._let_go()
            raise
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._commits = self._records = 0
        self._commit_seconds = 0.0
        return snapshot

    def kept_text(self, name: str) -> KeptText:
        return TextFile(self.path.parent / name)

    def _begin_epoch(self) -> Reached:
        """Counts the epoch up, and notices if the store has lost commits."""
        data_dir = self.path.parent
        now = self._now()
        fresh = secrets.token_bytes(SECRET_BYTES)
        reached, gap = begin_epoch(self._writer, read_mark(data_dir), now, fresh)
        if gap is not None:
            log.warning("the store: %s", gap.told())
        self._gaps = gaps(self._writer, now)
        try:
            self._mark = Mark(data_dir)
            self._mark.write(reached)
            self._mark.flush()
        except OSError as error:
            raise unusable(data_dir, error) from error
        return reached

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.path)

    async def ask(self, question: Callable[[Reads], T]) -> T:
        return question(self)

    def notes(self) -> list[str]:
        return [*(gap.told() for gap in self._gaps), *super().notes()]

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=LOCKED_SECONDS, isolation_level=None, check_same_thread=False
        )
        self._connections.append(connection)
        return connection

    async def commit(
        self, records: Sequence[StoreRecord], on_delay: Callable[[str], None] | None = None
    ) -> None:
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

    def _write(self, records: Sequence[StoreRecord]) -> None:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            write(self._writer, records, self._now())
        except BaseException:
            self._writer.rollback()
            raise

    def _end(self) -> None:
        """The part of a commit that runs in the thread."""
        try:
            delete_forgotten(self._writer)
            counted = self._writer.execute(_COUNT_COMMIT, (self._epoch,)).fetchall()
            if not counted:
                raise StoreUnusable(
                    "Another manager has taken the store over",
                    cause=f"{self.path} has another epoch than {self._epoch}, that of this start",
                    hint="run one manager for each store, on a file system with locks",
                )
            self._writer.commit()
        except BaseException:
            self._writer.rollback()
            raise
        assert self._mark is not None
        with suppress(OSError):  # The commit counts; the mark lags behind, which harms nothing.
            self._mark.write(Reached(*counted[0]))

    def items(self, job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        def read() -> ItemWindow | None:
            with explained(self.path):
                return reading.items(self._reader, job_id, index)

        return at_hand(read)

    def program(self, job_id: int) -> asyncio.Future[Program | None]:
        def read() -> Program | None:
            with explained(self.path):
                return reading.program(self._reader, job_id, self._set_aside)

        return at_hand(read)

    def statistics(self) -> Statistics:
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return Statistics(
            free_bytes=self._free_bytes(),
            commits=self._commits,
            commit_seconds=self._commit_seconds,
            records=self._records,
            bytes_on_disk=sum(file.stat().st_size for file in files if file.exists()),
        )

    def _free_bytes(self) -> int:
        with explained(self.path):
            [pages] = self._reader.execute("PRAGMA freelist_count").fetchone()
            [page_bytes] = self._reader.execute("PRAGMA page_size").fetchone()
        return int(pages * page_bytes)

    def close(self) -> None:
        if self._lock is not None:
            self._thread.shutdown()
            self._let_go()

    def _let_go(self) -> None:
        while self._connections:
            self._connections.pop().close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
