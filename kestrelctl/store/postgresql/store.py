"""The store of a manager in PostgreSQL.

A commit is one message from a thread of its own (`batch`), so the event loop waits for neither
network nor disk. Reads have threads and connections of their own; `ask` is how an event loop reads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

from kestrelctl import clock
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.seal import SECRET_BYTES
from kestrelctl.store import reading
from kestrelctl.store.directory import claim, unusable
from kestrelctl.store.item_window import ItemWindow
from kestrelctl.store.kept_text import KeptText
from kestrelctl.store.mark import Mark, Reached, read_mark
from kestrelctl.store.opening import Gap
from kestrelctl.store.port import Reads, Statistics, StoreRecord
from kestrelctl.store.postgresql import session
from kestrelctl.store.postgresql.commits import Writer
from kestrelctl.store.postgresql.leadership import PostgresqlLeadership
from kestrelctl.store.postgresql.opening import checked, make_tables, take
from kestrelctl.store.postgresql.reader import LinkReader
from kestrelctl.store.postgresql.session import Link, explained
from kestrelctl.store.postgresql.text_row import TextRow
from kestrelctl.store.table_reads import TableReads

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Questions that are answered at the same time.
READERS = 4
#: The size on disk is asked for again after so long.
SIZE_SECONDS = 10.0
#: A statement that takes longer is slow: each commit waits as long.
SLOW_SECONDS = 0.1
#: How long a cancelled commit is waited for.
GIVE_UP_SECONDS = 5.0


def _look_at(ended: asyncio.Future[Reached]) -> None:
    """Looks at how a commit ended of which nobody wants to know."""
    if not ended.cancelled():
        ended.exception()


class PostgresqlStore(TableReads):
    """Keeps the promises of `Store` as far as PostgreSQL keeps its own."""

    def __init__(
        self,
        data_dir: Path,
        conninfo: str,
        pool: str,
        now: Callable[[], float] | None = None,
        *,
        password: str = "",
    ) -> None:
        """Does nothing yet.

        Args:
            data_dir: this manager's alone; `open` makes it if there is none. A mark is kept there
                of how far the store came.
            conninfo: says how to connect, without a password.
            pool: the domain of the manager's pool.
            now: seconds since the epoch; None for the clock of the machine.
            password: of the role, if PostgreSQL's own library does not find it.
        """
        super().__init__()
        self._now = now or (lambda: clock.wall())
        self._data_dir = data_dir
        self._conninfo = session.conninfo_of(conninfo)
        self._password = password
        self.database = session.where(conninfo)
        self.leadership = PostgresqlLeadership(
            self._connect,
            lambda link: checked(link, self._pool, self.database),
            self.database,
        )
        self._pool = pool
        self._epoch = 0
        self._lock: int | None = None
        self._writer: Writer | None = None
        self._reads: LinkReader | None = None
        self._mark: Mark | None = None
        self._commit_thread: ThreadPoolExecutor
        self._read_threads: ThreadPoolExecutor
        self._ending: asyncio.Future[Reached] | None = None
        self._notes: list[str] = []
        self._gaps: list[Gap] = []
        self._commits = self._records = 0
        self._commit_seconds = 0.0
        self._size_bytes = 0
        self._size_known_at = 0.0

    def open(self) -> Snapshot:
        self._lock = claim(self._data_dir)
        link: Link | None = None
        try:
            with explained(self.database):
                link = self._connect_to_write()
                self._notes = self._weaknesses(link)
                make_tables(link, self._pool, self.database)
                self._take(link)
                self.leadership.keep()  # what follows may take longer than a lease
                self._reads = self._reader = LinkReader(self._connect_to_read)
                self._damaged = {}
                self._ask_size()
                snapshot = reading.snapshot(self._reader, self._set_aside)
        except BaseException:
            if link is not None:
                link.close()
            self._let_go()
            self.leadership.let_go()
            raise
        self._commit_thread = ThreadPoolExecutor(1, thread_name_prefix="commit")
        self._read_threads = ThreadPoolExecutor(READERS, thread_name_prefix="read")
        self._commits = self._records = 0
        self._commit_seconds = 0.0
        return snapshot

    def _take(self, link: Link) -> None:
        """Makes the store this manager's, and notices if it has lost commits."""
        now = self._now()
        taken = take(
            link,
            self.database,
            self.leadership.take,
            read_mark(self._data_dir),
            now,
            secrets.token_bytes(SECRET_BYTES),
        )
        self._epoch = taken.reached.epoch
        self._gaps = taken.gaps
        for gap in taken.gaps:
            if gap.noticed_at == now:
                log.warning("the store: %s", gap.told())
        try:
            self._mark = Mark(self._data_dir)
            self._mark.write(taken.reached)
            self._mark.flush()
        except OSError as error:
            raise unusable(self._data_dir, error) from error
        self._writer = Writer(
            self._connect_to_write,
            link,
            taken.connection,
            taken.reached,
            self.database,
            self._now,
        )

    def _connect(self) -> Link:
        return session.connect(self._conninfo, self._password)

    def _connect_to_write(self) -> Link:
        link = self._connect()
        try:
            with explained(self.database):
                session.must_serve(link, self._conninfo)
                link.execute("SET statement_timeout = 0")
        except BaseException:
            link.close()
            raise
        return link

    def _connect_to_read(self) -> Link:
        link = self._connect()
        link.execute(f"SET statement_timeout = '{session.READ_SECONDS}s'")
        link.execute("SET default_transaction_read_only = on")
        return link

    def _weaknesses(self, link: Link) -> list[str]:
        """Notes on the server, for whoever runs the manager."""
        started = time.perf_counter()
        found = []
        if session.setting(link, "fsync") == "off":
            found.append("PostgreSQL has fsync off: it loses commits when its machine stops")
        took = time.perf_counter() - started
        if took > SLOW_SECONDS:
            found.append(
                f"PostgreSQL took {took:.1f} s for one statement when the manager started: each"
                " commit takes at least as long"
            )
        for note in found:
            log.warning("the store: %s", note)
        return found

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self.database)

    def kept_text(self, name: str) -> KeptText:
        return TextRow(self._connect, self.database, name, self._epoch)

    async def ask(self, question: Callable[[Reads], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._read_threads, question, self)

    def items(self, job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        return self._read_apart(lambda: reading.items(self._reader, job_id, index))

    def program(self, job_id: int) -> asyncio.Future[Program | None]:
        return self._read_apart(lambda: reading.program(self._reader, job_id, self._set_aside))

    def _read_apart(self, read: Callable[[], T]) -> asyncio.Future[T]:
        def explained_read() -> T:
            try:
                with explained(self.database):
                    return read()
            except session.NOT_REACHED as error:
                raise session.for_now(error) from error

        return asyncio.get_running_loop().run_in_executor(self._read_threads, explained_read)

    async def commit(
        self, records: Sequence[StoreRecord], on_delay: Callable[[str], None] | None = None
    ) -> None:
        assert self._ending is None or self._ending.done(), "one commit at a time"
        assert self._writer is not None
        if not records:
            return
        started = time.perf_counter()
        loop = asyncio.get_running_loop()

        def told(why: str) -> None:
            if on_delay is not None:
                loop.call_soon_threadsafe(on_delay, why)

        self._ending = loop.run_in_executor(self._commit_thread, self._writer.commit, records, told)
        try:
            reached = await asyncio.shield(self._ending)
        except asyncio.CancelledError:
            # The next one must not begin inside this one, which ends with its connection at last.
            self._writer.given_up.set()
            self._ending.add_done_callback(_look_at)
            await asyncio.wait([self._ending], timeout=GIVE_UP_SECONDS)
            raise
        assert self._mark is not None
        with suppress(OSError):  # The commit counts; the mark lags behind, which harms nothing.
            self._mark.write(reached)
        self._commits += 1
        self._commit_seconds += time.perf_counter() - started
        self._records += len(records)

    def notes(self) -> list[str]:
        return [*self._notes, *(gap.told() for gap in self._gaps), *super().notes()]

    def statistics(self) -> Statistics:
        """The size is that of a moment ago: nobody waits for it."""
        if time.monotonic() - self._size_known_at > SIZE_SECONDS:
            self._size_known_at = time.monotonic()
            self._read_threads.submit(self._ask_size)
        return Statistics(
            commits=self._commits,
            commit_seconds=self._commit_seconds,
            records=self._records,
            bytes_on_disk=self._size_bytes,
        )

    def _ask_size(self) -> None:
        size = "SELECT pg_database_size(current_database())"
        [self._size_bytes] = self._reader.execute(size).fetchone()
        self._size_known_at = time.monotonic()

    def close(self) -> None:
        if self._lock is not None and self._writer is not None:
            self._writer.given_up.set()  # of a commit that nobody answers for
            self._commit_thread.shutdown()
            self._read_threads.shutdown()
            self._let_go()
        self.leadership.close()

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._reads is not None:
            self._reads.close()
            self._reads = None
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
