"""Takes a database for a manager: makes its tables, and counts the epoch up."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kestrelctl.errors import StoreUnusable
from kestrelctl.store.mark import Reached
from kestrelctl.store.opening import APPLICATION_ID, Gap, counted_up, gaps, put_gap
from kestrelctl.store.postgresql.leadership import must_be_free
from kestrelctl.store.postgresql.plain import PlainLink
from kestrelctl.store.postgresql.schema import NEW_POOL, STEPS
from kestrelctl.store.postgresql.session import Link


class Taken(NamedTuple):
    """A store that this manager has now.

    Attributes:
        connection: the number of the connection that has taken it.
        gaps: what was missing in it lately.
    """

    reached: Reached
    connection: int
    gaps: list[Gap]


def checked(link: Link, pool: str, database: str) -> tuple[str, int]:
    """The name of the pool whose store a database holds, and the version of its tables.

    Args:
        pool: the domain of the manager's pool; empty if any will do.
        database: what messages call it.

    Returns:
        ("", 0) if it holds none.

    Raises:
        StoreUnusable: it is another pool's, or a newer program made it.
    """
    plain = PlainLink(link)
    [exists] = plain.execute("SELECT to_regclass('pool') IS NOT NULL").fetchone()
    if not exists:
        return "", 0
    found = plain.execute("SELECT name, schema_version FROM pool").fetchone()
    if found is None:
        raise StoreUnusable(
            "The manager's store is damaged",
            cause=f"{database}: the table `pool` is empty",
            hint="restore the database from a backup of PostgreSQL's own tools",
        )
    name, version = found
    if name and pool and name != pool:
        raise StoreUnusable(
            f"the database holds the store of the pool {name}",
            cause=f"{database} is not that of {pool}",
            hint="give each pool a database of its own, or a schema by its role's search_path",
        )
    if version > len(STEPS):
        raise StoreUnusable(
            "the store was made by a newer Kestrel",
            cause=f"{database} has a schema of version {version}; this program knows up to"
            f" {len(STEPS)}",
            hint="start the newer Kestrel, or give this one another --postgresql",
        )
    return name, version


def make_tables(link: Link, pool: str, database: str) -> None:
    """Takes a database through the steps that it lacks, all in one transaction.

    Args:
        pool: the domain of the manager's pool; empty if the first manager says it.
        database: what messages call it.

    Raises:
        AnotherLeads: a manager works with it.
        StoreUnusable: it is another pool's, or a newer program made it.
    """
    plain = PlainLink(link)
    with link.transaction():
        # Two managers that start at once make them one after the other.
        plain.execute("SELECT pg_advisory_xact_lock(?)", (APPLICATION_ID,))
        name, version = checked(link, pool, database)
        must_be_free(link, database, lock=False)
        for statement in (each for step in STEPS[version:] for each in step):
            link.execute(statement)
        if not version:
            plain.execute(NEW_POOL, (pool, len(STEPS)))
        elif version < len(STEPS):
            plain.execute("UPDATE pool SET schema_version = ?", (len(STEPS),))
        if pool and not name:
            plain.execute("UPDATE pool SET name = ?", (pool,))


def take(
    link: Link,
    database: str,
    lead: Callable[[Link, int], None],
    mark: Reached | None,
    now: float,
    fresh_secret: bytes,
) -> Taken:
    """Counts the epoch up durably; no commit of another manager counts from then on.

    Args:
        database: what messages call it.
        lead: called within the transaction, with the new epoch.
        mark: how far the store is known to have come; None if nobody knows.
        now: seconds since the epoch.
        fresh_secret: the secret of seals from now on, if the store has none yet.

    Raises:
        AnotherLeads: another manager works with it.
        StoreUnusable: a store was being moved here, and is not whole.
    """
    plain = PlainLink(link)
    with link.transaction():
        must_be_free(link, database, lock=True)
        [moving_from] = plain.execute("SELECT moving_from FROM pool").fetchone()
        if moving_from is not None:
            raise StoreUnusable(
                "the store is not whole: it was being moved from SQLite, and that was interrupted",
                cause=f"the store in SQLite had counted {moving_from:,} commits",
                hint="finish it with `kestrelctl manager migrate`",
            )
        row = plain.execute("SELECT commits, epoch, last_job_id FROM pool FOR UPDATE").fetchone()
        here = Reached(*row)
        # Without a mark, the manager is new on its machine. That the database has all is the
        # promise of PostgreSQL.
        reached, gap = counted_up(here, mark or here, now)
        [connection] = plain.execute(
            "UPDATE pool SET commits = ?, epoch = ?, last_job_id = ?, connection = connection + 1,"
            " secret = coalesce(secret, ?) RETURNING connection",
            (reached.commits, reached.epoch, reached.last_job_id, fresh_secret),
        ).fetchone()
        lead(link, reached.epoch)
        if gap is not None:
            put_gap(plain, gap)
        return Taken(reached, connection, gaps(plain, now))
