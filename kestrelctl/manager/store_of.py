"""Chooses the store of a manager: SQLite in its directory, unless a PostgreSQL is named."""

from __future__ import annotations

from kestrelctl.errors import UsageError
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.missing_package import missing_package
from kestrelctl.store.port import Store
from kestrelctl.store.sqlite.store import DATABASE, SqliteStore


def store_of(options: ManagerOptions) -> Store:
    """Makes the store that the options of a manager ask for; it is still to be opened.

    Raises:
        MissingTool: the package that connects to PostgreSQL is not installed.
        UsageError: the connection string is none, there is no password where it should be, or jobs
            in SQLite would be left behind.
    """
    if not options.postgresql:
        if options.postgresql_password_file:
            raise UsageError(
                "--postgresql-password-file is for a store in PostgreSQL",
                hint="--postgresql CONNINFO",
            )
        return SqliteStore(options.data_dir)
    must_have_psycopg()
    from kestrelctl.store.postgresql.session import password_in
    from kestrelctl.store.postgresql.store import PostgresqlStore

    before = options.data_dir / DATABASE
    if before.exists():
        raise UsageError(
            f"{before} holds the store of this manager, and --postgresql would leave it behind",
            cause="the jobs in it would be lost to their owners",
            hint="take them along with `kestrelctl manager migrate`, or start without --postgresql",
        )
    password = password_in(options.postgresql_password_file)
    return PostgresqlStore(options.data_dir, options.postgresql, options.domain, password=password)


def must_have_psycopg() -> None:
    """Passes if the package that connects to PostgreSQL is installed.

    Raises:
        MissingTool: it is not.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise missing_package(
            "psycopg, which --postgresql needs, is not installed",
            "psycopg[binary]",
            cause=str(error),
        ) from error
