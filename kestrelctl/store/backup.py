"""Copies of a manager's SQLite store: made while the manager runs, put back while it does not.

A store that is put back has forgotten what happened since it was copied: attempts that were handed
out and jobs that were accepted. Their numbers must not be given away a second time, because a
worker may still hold such an attempt, or a result of it. So `restore` counts on from the store that
it replaces if that is the copy's successor, and from far ahead otherwise: the pool may have gone on
anywhere. Either way it begins a new term, by which its manager outranks those of the stores before
it (`core.model.sealed_epoch`).
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec

from kestrelctl import clock
from kestrelctl.errors import (
    NO_SPACE,
    KestrelError,
    NotFound,
    StoreFull,
    StoreUnusable,
    UsageError,
)
from kestrelctl.store.directory import check_path, claim, unusable
from kestrelctl.store.mark import Mark, Reached, read_mark
from kestrelctl.store.sqlite.errors import explained
from kestrelctl.store.sqlite.migrations import MIGRATIONS, migrate
from kestrelctl.store.sqlite.store import DATABASE

#: If nobody is left to ask, at least so many starts and jobs are taken to have followed a copy, and
#: less than twice as many: the number is drawn, so that two restores of one copy go on apart.
MISSED_STARTS = 10_000
MISSED_JOBS = 1_000_000


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a copy of a store.

    Attributes:
        epoch: starts of the manager until then.
        last_job_id: the highest job id that was ever given away.
        jobs, active_jobs: how many it remembers, and how many of these have not ended.
    """

    file: str
    bytes: int
    epoch: int
    last_job_id: int
    jobs: int
    active_jobs: int


def back_up(data_dir: Path, target: Path) -> Copy:
    """Copies the store as it is now; the manager may go on writing meanwhile.

    Args:
        target: made with mode 0600, complete or not at all; one that exists is replaced.

    Raises:
        NotFound: there is no store.
        UsageError: the target is the store itself.
        StoreFull: there is no space.
        KestrelError: the target cannot be written, or the store is damaged.
    """
    database = data_dir / DATABASE
    if not database.exists():
        raise NotFound(f"there is no store in {data_dir}", hint="--data-dir")
    if target.resolve() in [file.resolve() for file in _files(database)]:
        raise UsageError(f"{target} is the store itself", hint="copy it into another file")
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    check_path(unfinished)
    with _written(unfinished, target):
        _copy(database, unfinished)
        copy = checked(unfinished)
    return msgspec.structs.replace(copy, file=str(target))


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a store, and the pool that it is of.

    Attributes:
        secret: that of the pool; None if it has none yet.
        term, epoch: as in `core.model.sealed_epoch.SealedEpoch`.
        last_job_id: the highest job id that was ever given away.
    """

    secret: bytes | None
    term: int
    epoch: int
    last_job_id: int

    def succeeds(self, copy: Lineage) -> bool:
        """Whether this store went on from where the copy was made.

        It is of the same pool then, and not behind the copy. One that is behind was left when the
        pool went on elsewhere, where the copy comes from.
        """
        same_pool = self.secret is not None and self.secret == copy.secret
        return same_pool and (self.term, self.epoch) >= (copy.term, copy.epoch)


def goes_on_from(
    copy: Lineage, replaced: Lineage | None, mark: Reached, now: float, draw: Callable[[int], int]
) -> Lineage:
    """Returns the numbers from which a restored store counts on: none was given away before.

    Args:
        copy: what is restored.
        replaced: the store that it replaces; None if there is none, or it cannot be read.
        mark: how far the replaced store is known to have come; it may have lost what came last.
        now: seconds since the epoch, by the clock of the machine.
        draw: a random number from 0 and below its argument.
    """
    known = [copy] if replaced is None else [copy, replaced]
    epoch = max(mark.epoch, *(line.epoch for line in known))
    last_job_id = max(mark.last_job_id, *(line.last_job_id for line in known))
    if replaced is None or not replaced.succeeds(copy):
        epoch += MISSED_STARTS + draw(MISSED_STARTS)
        last_job_id += MISSED_JOBS + draw(MISSED_JOBS)
    # The later one of two restores of a copy counts, and the copy does not know of the other.
    term = max(int(now), 1 + max(line.term for line in known))
    return Lineage(secret=copy.secret, term=term, epoch=epoch, last_job_id=last_job_id)


def restore(
    source: Path,
    data_dir: Path,
    set_aside: Path,
    *,
    now: float | None = None,
    draw: Callable[[int], int] = secrets.randbelow,
) -> Copy:
    """Puts a copy in the place of the store. The manager must not run.

    Args:
        source: a file that `back_up` made; it is left as it is.
        set_aside: directory that is made for the store that is replaced, if there is one.
        now: seconds since the epoch; None for the clock of the machine.
        draw: as in `goes_on_from`.

    Raises:
        NotFound: there is no such copy.
        StoreFull: there is no space.
        KestrelError: the copy is damaged or from a newer Kestrel, or a manager runs; nothing was
            changed.
    """
    checked(source)
    lock = claim(data_dir)
    try:
        database = data_dir / DATABASE
        replaced = _lineage_of_replaced(database)
        mark = read_mark(data_dir) or Reached(0, 0, 0)
        unfinished = data_dir / f"{DATABASE}.restoring"
        check_path(unfinished)
        with _written(unfinished, database, lambda: _keep(database, set_aside)):
            _copy(source, unfinished)
            with explained(unfinished), closing(sqlite3.connect(unfinished)) as connection:
                migrate(connection, unfinished)
                moment = clock.wall() if now is None else now
                line = goes_on_from(_lineage(connection), replaced, mark, moment, draw)
                connection.execute(
                    "UPDATE pool"
                    " SET commits = max(commits, ?), epoch = ?, last_job_id = ?, term = ?",
                    (mark.commits, line.epoch, line.last_job_id, line.term),
                )
                connection.commit()
                reached = connection.execute("SELECT commits, epoch, last_job_id FROM pool")
                counted = Reached(*reached.fetchone())
        _mark(data_dir, counted)
    finally:
        os.close(lock)
    return checked(database)


def count_jobs(data_dir: Path) -> tuple[int, int]:
    """Counts the jobs that a store remembers, and those that have not ended; checks nothing.

    A manager may be using it.

    Raises:
        NotFound: there is no store.
        KestrelError: it cannot be read.
    """
    database = data_dir / DATABASE
    if not database.exists():
        raise NotFound(f"there is no store in {data_dir}")
    uri = database.absolute().as_uri() + "?mode=ro"
    with _intact(database), closing(sqlite3.connect(uri, uri=True)) as connection:
        return _job_counts(connection)


def _job_counts(connection: sqlite3.Connection) -> tuple[int, int]:
    jobs, active = connection.execute(
        "SELECT count(*), count(*) FILTER (WHERE state = 'active') FROM jobs"
    ).fetchone()
    return jobs, active


def checked(path: Path) -> Copy:
    """Reads all of a store that no manager uses, and tells what is in it.

    Raises:
        NotFound: there is no such file.
        KestrelError: it is damaged, no store, or made by a newer Kestrel.
    """
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    check_path(path)
    with _intact(path), closing(_open_to_read(path)) as connection:
        damage = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if damage != "ok":
            raise sqlite3.DatabaseError(damage)
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if not version:
            raise sqlite3.DatabaseError("there are no tables of a manager in it")
        if version > len(MIGRATIONS):
            raise StoreUnusable(
                f"{path} was made by a newer Kestrel",
                cause=f"its schema has version {version}; this knows up to {len(MIGRATIONS)}",
                hint="install the newer Kestrel first",
            )
        epoch, last_job_id = connection.execute("SELECT epoch, last_job_id FROM pool").fetchone()
        jobs, active = _job_counts(connection)
    return Copy(
        file=str(path),
        bytes=path.stat().st_size,
        epoch=epoch,
        last_job_id=last_job_id,
        jobs=jobs,
        active_jobs=active,
    )


@contextmanager
def _intact(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise KestrelError(f"{path} is no intact copy of a store", cause=str(error)) from error


def _lineage(connection: sqlite3.Connection) -> Lineage:
    """Reads how far an open store came.

    Raises:
        sqlite3.Error, TypeError, ValueError, KeyError: it is no store.
    """
    found = connection.execute("SELECT * FROM pool")
    names = [column[0] for column in found.description]
    row = dict(zip(names, found.fetchone(), strict=True))
    return Lineage(
        secret=row.get("secret"),
        term=int(row.get("term", 0)),  # an earlier release has made it
        epoch=int(row["epoch"]),
        last_job_id=int(row["last_job_id"]),
    )


def _lineage_of_replaced(database: Path) -> Lineage | None:
    """Reads how far the store to be replaced came; None if it cannot tell."""
    try:
        with closing(sqlite3.connect(database.as_uri() + "?mode=rw", uri=True)) as connection:
            # Also empties the log into the database, so that both can be moved away together.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return _lineage(connection)
    except (sqlite3.Error, TypeError, ValueError, KeyError):
        return None


def _mark(data_dir: Path, reached: Reached) -> None:
    """Notes how far the restored store has come: without a mark it would seem to lack something."""
    try:
        mark = Mark(data_dir)
        mark.write(reached)
        mark.close()
    except OSError as error:
        raise unusable(data_dir, error) from error


def _files(database: Path) -> list[Path]:
    """A database, and what SQLite keeps beside it."""
    return [database.with_name(database.name + suffix) for suffix in ("", "-wal", "-shm")]


def _keep(database: Path, directory: Path) -> None:
    """Keeps the files to be replaced; the database also stays in place until it is replaced."""
    there = [file for file in _files(database) if file.exists()]
    if there:
        directory.mkdir(mode=0o700, exist_ok=True)
    for file in there:
        if file == database:
            os.link(file, directory / file.name)
        else:
            # SQLite would take it for the copy's. It exists only if the store is damaged: otherwise
            # it was emptied into the database.
            file.rename(directory / file.name)


def _open_to_read(path: Path) -> sqlite3.Connection:
    # No other process has it open, so it needs no lock and no log beside it: the directory may be
    # one in which nothing can be written. https://www.sqlite.org/uri.html#uriimmutable
    return sqlite3.connect(path.absolute().as_uri() + "?immutable=1", uri=True)


def _copy(source: Path, target: Path) -> None:
    # O_EXCL: nothing is written through a link that somebody else has put there.
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with (
        explained(source),
        closing(sqlite3.connect(source.absolute().as_uri() + "?mode=ro", uri=True)) as reader,
        closing(sqlite3.connect(target)) as writer,
    ):
        reader.execute("PRAGMA schema_version")
        try:
            # In one step, which keeps one state of the source: https://www.sqlite.org/backup.html
            reader.backup(writer)
            # A copy is one file; the manager switches the log on again.
            writer.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            raise StoreFull(f"{target} cannot be written", cause=str(error)) from error


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _written(
    unfinished: Path, target: Path, before_rename: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Gives `unfinished` its name once the block has written all of it; otherwise removes it."""
    try:
        if target.exists() and not target.is_file():  # root would replace a device
            raise KestrelError(f"{target} cannot be written", cause="it is no ordinary file")
        unfinished.unlink(missing_ok=True)
        yield
        _sync(unfinished)
        before_rename()
        unfinished.rename(target)
        _sync(target.parent)
    except OSError as error:
        kind = StoreFull if error.errno in NO_SPACE else KestrelError
        raise kind(
            f"{target} cannot be written", cause=f"{error.filename or target}: {error.strerror}"
        ) from error
    finally:
        for name in (unfinished.name, f"{unfinished.name}-journal"):
            with suppress(OSError):  # why it could not be written says more
                unfinished.with_name(name).unlink(missing_ok=True)
