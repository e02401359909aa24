"""Checks a database before a manager works with it, and finds out what is missing in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import msgspec

from kestrelctl.core.model.seal import SECRET_BYTES
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import StoreUnusable
from kestrelctl.store.connection import TableConnection, TableReader
from kestrelctl.store.mark import UNKNOWN_JOBS, UNKNOWN_STARTS, Reached

#: Says that a database is a manager's: `Kest`. https://www.sqlite.org/pragma.html
APPLICATION_ID = 0x4B657374

#: The tables that are looked through at each start. The others may hold gigabytes; damage there is
#: found when it is read.
_SMALL_TABLES = ("pool", "jobs", "workers", "settings")

#: How long a gap is reported after it was noticed.
TOLD_SECONDS = 7 * 86_400.0


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Commits that are missing in a store.

    Attributes:
        noticed_at: seconds since the epoch.
        commits: how many; 0 if nobody knows.
        last_kept_job: ids up to this one are of jobs that the store knows of.
        next_job: ids from this one on are certainly new.
    """

    noticed_at: float
    commits: int
    last_kept_job: int
    next_job: int

    def told(self) -> str:
        """Explains the gap in a sentence."""
        missing = plural(self.commits, "commit") if self.commits else "an unknown number of commits"
        were = "was" if self.commits == 1 else "were"
        return (
            f"{missing} {were} missing when the manager started: jobs with ids above"
            f" {self.last_kept_job} and below {self.next_job}, and what happened last in others,"
            " may be gone; ids and attempt numbers go on above what may have been used"
        )


def must_be_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses a database of another program.

    Raises:
        StoreUnusable: it is one.
    """
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    [pools] = connection.execute(
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'pool'"
    ).fetchone()
    made_by_us = version > 0 and pools
    empty = version == 0 and not tables
    if application in (0, APPLICATION_ID) and (made_by_us or empty):
        return
    raise StoreUnusable(
        f"{path} is no manager's store",
        cause=f"its application id is {application}, its version {version}, with {tables} tables",
        hint="give the manager a directory of its own with --data-dir",
    )


def must_be_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Looks through the parts that every start depends on, and the small ones.

    Raises:
        StoreUnusable: something is damaged.
    """
    for table in _SMALL_TABLES:
        [found] = connection.execute(f"PRAGMA quick_check({table})").fetchone()
        if found != "ok":
            raise StoreUnusable.damaged(path, f"table {table}: {found}")
    rows = connection.execute("SELECT epoch, last_job_id, commits, term FROM pool").fetchall()
    if len(rows) != 1 or not all(isinstance(n, int) and n >= 0 for n in rows[0]):
        raise StoreUnusable.damaged(path, f"table pool holds {rows}")
    [secret] = connection.execute("SELECT secret FROM pool").fetchone()
    if secret is not None and not (isinstance(secret, bytes) and len(secret) == SECRET_BYTES):
        raise StoreUnusable.damaged(path, "the pool's secret is not as it was made")


def begin_epoch(
    connection: sqlite3.Connection, mark: Reached | None, now: float, fresh_secret: bytes
) -> tuple[Reached, Gap | None]:
    """Counts the epoch up durably; if commits are missing, beyond all that may have been used.

    Args:
        mark: how far the store is known to have come; None if nobody knows.
        now: seconds since the epoch.
        fresh_secret: the secret of seals from now on, if the store has none yet.

    Returns:
        How far the store is now, and what is missing in it.
    """
    row = connection.execute("SELECT commits, epoch, last_job_id FROM pool").fetchone()
    reached, gap = counted_up(Reached(*row), mark, now)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "UPDATE pool SET commits = ?, epoch = ?, last_job_id = ?, secret = ifnull(secret, ?)",
            (reached.commits, reached.epoch, reached.last_job_id, fresh_secret),
        )
        if gap is not None:
            put_gap(connection, gap)
    return reached, gap


def counted_up(here: Reached, mark: Reached | None, now: float) -> tuple[Reached, Gap | None]:
    """The numbers from which a manager goes on that opens a store, and what is missing in it.

    Args:
        here: how far the store says that it came.
        mark: how far it is known to have come; None if nobody knows.
        now: seconds since the epoch.
    """
    gap: Gap | None = None
    commits, epoch, last_job_id = here.commits, here.epoch, here.last_job_id
    if (mark is None and here.commits) or (mark is not None and mark.commits > here.commits):
        known = mark or Reached(0, epoch + UNKNOWN_STARTS, 0)
        commits = max(commits, known.commits)
        epoch = max(epoch, known.epoch)
        last_job_id = max(last_job_id, known.last_job_id) + UNKNOWN_JOBS
        gap = Gap(
            noticed_at=now,
            commits=commits - here.commits,
            last_kept_job=here.last_job_id,
            next_job=last_job_id + 1,
        )
    return Reached(commits + 1, epoch + 1, last_job_id), gap


def put_gap(connection: TableConnection, gap: Gap) -> None:
    """Keeps a gap, so that whoever runs the manager is told of it for a while."""
    connection.execute(
        "INSERT INTO gaps (noticed_at, commits, last_kept_job, next_job) VALUES (?, ?, ?, ?)",
        (gap.noticed_at, gap.commits, gap.last_kept_job, gap.next_job),
    )


def gaps(connection: TableReader, now: float) -> list[Gap]:
    """The gaps that were noticed lately, the oldest first."""
    rows = connection.execute(
        "SELECT noticed_at, commits, last_kept_job, next_job FROM gaps"
        " WHERE noticed_at > ? ORDER BY rowid",
        (now - TOLD_SECONDS,),
    )
    return [
        Gap(noticed_at=at, commits=commits, last_kept_job=last_kept, next_job=next_job)
        for at, commits, last_kept, next_job in rows
    ]
