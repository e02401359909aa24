"""The connection that writes: commits, and what became of one whose connection was lost.

Each connection that writes draws a number in `pool`, and each commit begins by counting itself
there, on condition that epoch and number are still those of this manager. So a commit that was
under way on a connection that was lost either holds the row when the next connection draws its
number, which then waits and sees how it ended; or it comes later, and fails. Nobody guesses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from kestrelctl.core.model.records import JobForgotten, JobRecord, TaskRecord
from kestrelctl.errors import StoreFull, StoreUnusable, Unreachable
from kestrelctl.store import reading
from kestrelctl.store.mark import Reached
from kestrelctl.store.port import StoreRecord
from kestrelctl.store.postgresql.batch import Batch
from kestrelctl.store.postgresql.plain import PlainLink
from kestrelctl.store.postgresql.session import (
    NOT_REACHED,
    Link,
    another_manager,
    explained,
    for_now,
    is_lost,
)
from kestrelctl.store.writing import KnownJob, delete_forgotten, known_jobs, write

log = logging.getLogger(__name__)

#: Pause before the server is asked again what became of a commit.
ASK_AGAIN_SECONDS = 1.0
#: Jobs of which it is remembered that they are stored.
MOST_KNOWN_JOBS = 50_000

#: First in a transaction: whoever takes the store over waits for its end, or it fails.
_COUNT_COMMIT = """
    UPDATE pool SET commits = commits + 1, is_writers = (epoch = ? AND connection = ?)
"""
_DRAW_CONNECTION = """
    UPDATE pool SET connection = connection + 1 WHERE epoch = %s
    RETURNING connection, commits
"""
#: Changes nothing, but is a commit: when it is safe, all before it are.
_COMMIT_AGAIN = "UPDATE pool SET connection = connection WHERE epoch = %s"


class Writer:
    """Commits records, one batch at a time; not for an event loop, which would wait.

    Args:
        connect: makes a connection, checked.
        link: the one by which the store was taken.
        connection: the number of `link`.
        reached: how far the store is.
        database: what messages call it.
        now: seconds since the epoch.

    Attributes:
        given_up: set it to have a commit end that waits for a server that does not answer.
    """

    def __init__(
        self,
        connect: Callable[[], Link],
        link: Link,
        connection: int,
        reached: Reached,
        database: str,
        now: Callable[[], float],
    ) -> None:
        self.given_up = threading.Event()
        self._connect = connect
        self._connection = connection
        self._reached = reached
        self._database = database
        self._now = now
        self._known: dict[int, KnownJob] = {}
        self._warned = False
        self._link = link
        self._watch(link)
        self._has_forgotten = reading.has_forgotten(PlainLink(link))

    def commit(self, records: Sequence[StoreRecord], on_delay: Callable[[str], None]) -> Reached:
        """Makes a batch durable, all of it or nothing; returns how far the store is then.

        Args:
            on_delay: called with the reason, as soon as one is known, why it has to wait.

        Raises:
            StoreFull: nothing of the batch counts.
            StoreUnusable: another manager has the store, or it is damaged.
        """
        self.given_up.clear()
        if is_lost(self._link):
            self._connect_again()
        # The first connection may have been lost long before, while nothing was to be committed.
        if not (self._is_written(records, on_delay) or self._is_written(records, on_delay)):
            raise StoreFull(
                cause=f"{self._database}: the connection was lost, and the commit does not count",
                hint="see the log of PostgreSQL",
            )
        self._reached = Reached(
            self._reached.commits + 1,
            self._reached.epoch,
            max([self._reached.last_job_id, *_job_ids(records)]),
        )
        if self._warned:
            self._make_safe(on_delay)
        return self._reached

    def _is_written(self, records: Sequence[StoreRecord], on_delay: Callable[[str], None]) -> bool:
        """Commits; returns whether that counts, which it may though the connection was lost."""
        try:
            self._write(records)
        except psycopg.Error as error:
            self._known.clear()
            if not is_lost(self._link):
                with explained(self._database):
                    raise
            why = " ".join(str(error).split())
            log.warning("the connection to %s was lost in a commit: %s", self._database, why)
            return self._has_counted(on_delay)
        return True

    def _write(self, records: Sequence[StoreRecord]) -> None:
        batch = Batch(self._link)
        try:
            batch.execute(_COUNT_COMMIT, (self._reached.epoch, self._connection))
            write(batch, records, self._now(), self._known_of(batch, records))
            if any(isinstance(record, JobForgotten) for record in records):
                self._has_forgotten = True
            if self._has_forgotten:
                delete_forgotten(batch)
                self._has_forgotten = reading.has_forgotten(batch)
            batch.commit()
        except BaseException:
            batch.roll_back()
            raise

    def _known_of(self, batch: Batch, records: Sequence[StoreRecord]) -> dict[int, KnownJob]:
        """Finds out which of the jobs of a batch are stored, unless that is known."""
        if len(self._known) > MOST_KNOWN_JOBS:
            self._known.clear()
        asked = {
            record.job_id
            for record in records
            if isinstance(record, JobRecord | TaskRecord) and record.job_id not in self._known
        }
        last = self._reached.last_job_id
        if unknown := [job_id for job_id in asked if job_id <= last]:
            self._known |= known_jobs(batch, unknown)
        return self._known

    # -- lost connections --------------------------------------------------------------------------

    def _has_counted(self, on_delay: Callable[[str], None]) -> bool:
        """Whether the commit counts whose connection was lost: asks until somebody answers."""
        before = self._reached.commits
        while True:
            try:
                commits = self._connect_again()
            except StoreFull as error:
                log.error("nobody knows yet whether a commit counts: %s", error.cause)
                on_delay(error.cause or error.message)
                if self.given_up.wait(ASK_AGAIN_SECONDS):
                    raise
                continue
            log.warning("the commit %s", "counts" if commits > before else "does not count")
            return commits > before

    def _connect_again(self) -> int:
        """Replaces a connection that was lost, when nothing comes of that any more.

        Returns:
            How many commits the store has counted.

        Raises:
            StoreFull: the server does not answer, or takes no writes.
            StoreUnusable: another manager has the store, or it has lost commits.
        """
        try:
            link = self._connect()
        except NOT_REACHED as error:
            raise for_now(error) from error
        try:
            commits = self._draw_connection(link)
        except BaseException:
            link.close()
            raise
        self._link = link
        self._watch(link)
        return commits

    def _draw_connection(self, link: Link) -> int:
        """Waits until nothing comes of earlier connections; returns how many commits there are."""
        try:
            with explained(self._database):
                row = link.execute(_DRAW_CONNECTION, (self._reached.epoch,)).fetchone()
        except Unreachable as error:
            raise for_now(error) from error
        if row is None:
            raise another_manager(self._database)
        self._connection, commits = row
        if commits < self._reached.commits:
            raise StoreUnusable(
                "the database has lost commits that it had made",
                cause=f"{self._database} has counted {commits:,} commits, and had made"
                f" {self._reached.commits:,}: it may be a replica that took over too early",
                hint="start the manager again: ids and attempt numbers go on above what was used",
            )
        return int(commits)

    # -- warnings ----------------------------------------------------------------------------------

    def _watch(self, link: Link) -> None:
        link.add_notice_handler(self._on_notice)

    def _on_notice(self, diagnostic: Any) -> None:
        """Notes a warning: a commit that was not waited for ends with one, and without an error."""
        if diagnostic.severity_nonlocalized == "WARNING":
            log.warning("%s: %s", self._database, diagnostic.message_primary)
            self._warned = True

    def _make_safe(self, on_delay: Callable[[str], None]) -> None:
        """Commits something else until that ends without a warning: the replica has all then.

        https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION
        """
        while self._warned:
            self._warned = False
            try:
                if is_lost(self._link):
                    self._connect_again()
                else:
                    self._link.execute(_COMMIT_AGAIN, (self._reached.epoch,))
            except (psycopg.Error, StoreFull) as error:
                log.error("nobody knows yet whether a commit is safe: %s", error)
                on_delay(f"nobody knows yet whether a commit is safe: {error}")
                self._warned = True
            if self._warned and self.given_up.wait(ASK_AGAIN_SECONDS):
                return

    def close(self) -> None:
        """Ends the connection."""
        self._link.close()


def _job_ids(records: Sequence[StoreRecord]) -> list[int]:
    return [record.job_id for record in records if isinstance(record, JobRecord)]
