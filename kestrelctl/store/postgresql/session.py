"""Connections to the database of a store: made, checked, and their errors explained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from kestrelctl.errors import (
    KestrelError,
    NotAllowed,
    StoreFull,
    StoreTaken,
    StoreUnusable,
    Unreachable,
    Untrusted,
    UsageError,
    why,
)
from kestrelctl.store.postgresql.exact_text import register
from kestrelctl.store.postgresql.schema import FENCE

Link: TypeAlias = psycopg.Connection[tuple[Any, ...]]

#: The oldest release that its makers still mend, that of Debian 12, by which this is tried.
#: https://www.postgresql.org/support/versioning/
OLDEST_VERSION = 15
#: Settings under which a commit is on disk when it returns, on the replica too, if there is one.
#: https://www.postgresql.org/docs/current/runtime-config-wal.html#GUC-SYNCHRONOUS-COMMIT
DURABLE = ("on", "remote_apply")

#: Ways in which no connection comes about, which may be mended while the manager runs.
NOT_REACHED = (Unreachable, NotAllowed, Untrusted)

#: A server that is cut off is noticed after some 15 s. What the operator says has precedence.
_PATIENCE = {
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "kestrelctl",
}
#: Words of a server that refuses everybody for now: libpq gives no code of a refused connection.
_NOT_NOW = (
    "starting up",
    "shutting down",
    "in recovery mode",
    "not yet accepting connections",
    "too many c",  # clients, connections for role, connections for database
    "remaining connection slots",
)
#: A read that takes longer ends with an error: somebody waits for it.
READ_SECONDS = 60


def conninfo_of(text: str) -> str:
    """Checks a connection string.

    Raises:
        UsageError: it is none, or has a password in it, which the list of processes would show.
    """
    try:
        said = conninfo_to_dict(text)
    except psycopg.ProgrammingError as error:
        raise UsageError(
            "--postgresql is no connection string",
            cause=str(error).strip(),
            hint="write postgresql://USER@HOST/DATABASE, or service=NAME",
        ) from error
    if said.get("password"):
        raise UsageError(
            "--postgresql has a password in it, which everybody on this machine could read",
            hint="put it into a file that --postgresql-password-file names, or into ~/.pgpass",
        )
    return text


def password_in(file: Path | None) -> str:
    """Reads the password of a role; empty without a file.

    libpq reads no password file that a group may read, as the credentials of systemd may seem to
    be.

    Raises:
        UsageError: there is none in it, or it cannot be read.
    """
    if file is None:
        return ""
    try:
        password = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        cause = why(error) if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{file} has no password that can be read", cause=cause) from error
    if not password:
        raise UsageError(f"{file} has no password in it", hint="--postgresql-password-file")
    return password


def where(conninfo: str) -> str:
    """Names the database in messages: without what nobody should read in a log."""
    said = conninfo_to_dict(conninfo)
    named = {key: said[key] for key in ("service", "host", "port", "dbname", "user") if key in said}
    return make_conninfo("", **named) or "its default database"


def connect(conninfo: str, password: str) -> Link:
    """Connects to the database; each statement is a transaction of its own unless one is begun.

    Args:
        password: of the role; empty for one that PostgreSQL's own library finds, or none.

    Raises:
        Unreachable: nobody answers.
        NotAllowed: the server is there, and refuses.
        Untrusted: its certificate is not that of whom the connection string trusts.
    """
    said = conninfo_to_dict(conninfo)
    try:
        link = psycopg.connect(
            make_conninfo("", **{**_PATIENCE, **said, "client_encoding": "UTF8"}),
            password=password or None,
            autocommit=True,
            cursor_factory=psycopg.ClientCursor,
        )
    except psycopg.Error as error:
        raise _refused(error, where(conninfo)) from error
    link.prepare_threshold = None
    register(link.adapters)
    return link


def _refused(error: psycopg.Error, database: str) -> KestrelError:
    cause = " ".join(str(error).split())
    is_for_now = any(words in cause for words in _NOT_NOW)
    if ("FATAL" in cause or "password" in cause) and not is_for_now:
        return NotAllowed(
            "PostgreSQL refuses the manager",
            cause=f"{database}: {cause}",
            hint="`psql` with the same connection string tells the same; see its role, its"
            " database, and pg_hba.conf",
        )
    if "certificate" in cause or "does not support SSL" in cause:
        return Untrusted(
            "PostgreSQL cannot prove that it is the one that is meant",
            cause=f"{database}: {cause}",
            hint="`sslrootcert=` in --postgresql names the authority that has signed its"
            " certificate, which must be for its `host=`",
        )
    return Unreachable(
        "the manager's PostgreSQL does not answer",
        cause=f"{database}: {cause}",
        hint="start it, or correct --postgresql",
    )


def must_serve(link: Link, conninfo: str) -> None:
    """Checks that a server can keep what is promised.

    Raises:
        StoreUnusable: it is too old, or would lose commits, or text.
        StoreFull: it takes no writes.
    """
    database = where(conninfo)
    version = link.info.server_version // 10_000
    if version < OLDEST_VERSION:
        raise StoreUnusable(
            f"PostgreSQL {version} is too old for a manager's store",
            cause=f"{database}: {OLDEST_VERSION} is the oldest that its makers still mend, and that"
            " Kestrel is tried with",
            hint=f"move the database to PostgreSQL {OLDEST_VERSION} or newer",
        )
    level = setting(link, "synchronous_commit")
    if level not in DURABLE:
        raise StoreUnusable(
            f"PostgreSQL would lose what it has committed: synchronous_commit is {level}",
            cause=f"{database}: with it, a commit returns before it is on disk",
            hint=f"ALTER ROLE {link.info.user} SET synchronous_commit = on",
        )
    encoding = setting(link, "server_encoding")
    if encoding != "UTF8":
        raise StoreUnusable(
            f"a database with the encoding {encoding} cannot hold a manager's store",
            cause=f"{database}: what users write may need any character",
            hint="createdb --encoding UTF8 --template template0 …",
        )
    if setting(link, "transaction_read_only") == "on":
        raise StoreFull(
            "PostgreSQL takes no writes",
            cause=f"{database} is read-only, as a replica is",
            hint="name the primary; with several hosts, add target_session_attrs=read-write",
        )


def setting(link: Link, name: str) -> str:
    """A setting of the server, as it is for this connection."""
    found = link.execute("SELECT current_setting(%s)", (name,)).fetchone()
    assert found is not None
    return str(found[0])


def is_lost(link: Link) -> bool:
    """Whether nothing more comes of a connection."""
    return bool(link.closed or link.broken)


#: Classes of SQLSTATE, and single ones -> what whoever runs the manager can do about it. What was
#: to be written may be tried again. https://www.postgresql.org/docs/current/errcodes-appendix.html
_FOR_NOW: dict[str, str] = {
    "53100": "free space on the disk of the database",
    "53": "give PostgreSQL more memory or connections",
    "58": "see the log of PostgreSQL, and its disk",
    "25006": "name the primary; with several hosts, add target_session_attrs=read-write",
    "57": "see why PostgreSQL was told to end this",
    "40": "see which other program writes into the tables",
    "55": "see which other program has the tables locked",
}


@contextmanager
def explained(database: str) -> Iterator[None]:
    """Turns PostgreSQL's errors into ours; bugs pass through.

    Args:
        database: what messages call it.

    Raises:
        StoreFull: it takes no writes now; it may work later.
        StoreUnusable: another manager has the store, it is damaged, or the role may not use it.
        Unreachable: the connection was lost.
        KestrelError: PostgreSQL cannot go on.
    """
    try:
        yield
    except psycopg.Error as error:
        found = _explained(error, database)
        if found is None:
            raise
        raise found from error


def _explained(error: psycopg.Error, database: str) -> KestrelError | None:
    """Our error; None if it is a bug."""
    state = error.sqlstate or ""
    cause = f"{database}: {' '.join(str(error).split())} ({state or 'no code'})"
    if error.diag.constraint_name == FENCE:
        return another_manager(database)
    for prefix, hint in _FOR_NOW.items():
        if state.startswith(prefix):
            return StoreFull(cause=cause, hint=hint)
    if state.startswith("XX"):
        return StoreUnusable(
            "The manager's store is damaged",
            cause=cause,
            hint="restore the database from a backup of PostgreSQL's own tools",
        )
    if state == "42501":
        return StoreUnusable(
            "PostgreSQL does not let the manager use its tables",
            cause=cause,
            hint="make its role the owner of the database or the schema: docs/operations.md",
        )
    if state in ("42P01", "42703", "42P07", "42723"):
        return StoreUnusable(
            "the database holds tables of another program",
            cause=cause,
            hint="give the manager a database of its own, or a schema by its role's search_path",
        )
    if isinstance(error, psycopg.IntegrityError | psycopg.ProgrammingError | psycopg.DataError):
        return None
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state:
        return Unreachable(
            "the connection to the manager's PostgreSQL was lost",
            cause=cause,
            hint="it is made anew; see the log of PostgreSQL",
        )
    return KestrelError("The manager's store failed", cause=cause)


def for_now(error: KestrelError) -> StoreFull:
    """The error by which it is tried again later, where no connection came about."""
    return StoreFull(cause=f"{error.message}: {error.cause}", hint=error.hint)


def another_manager(database: str) -> StoreTaken:
    """Another manager has opened the store since."""
    return StoreTaken(
        "Another manager has taken the store over",
        cause=f"{database} has another epoch than that of this start",
        hint="`kestrelctl pool status` tells which one leads",
    )
