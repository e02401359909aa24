"""A connection to whatever holds the tables of a store.

`sqlite3.Connection` is one, and `store.postgresql` has others. Statements are written in SQLite's
words, as far as possible in those that both understand; `store.postgresql.dialect` translates the
rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol


class Rows(Protocol):
    """Rows that a statement has found, or changed."""

    @property
    def rowcount(self) -> int:
        """Number of rows that it has changed."""
        ...

    def fetchone(self) -> Any:
        """The next row; None if there is no other."""
        ...

    def fetchall(self) -> list[Any]:
        """All other rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None:
        """Drops the rows that were not asked for."""
        ...


class TableReader(Protocol):
    """A connection by which tables are read."""

    def execute(self, statement: str, values: Any = ..., /) -> Rows:
        """Runs a statement.

        Args:
            values: for each `?` one, or for each `:name` one by name.
        """
        ...


class TableConnection(TableReader, Protocol):
    """A connection that also writes: it runs statements in the order in which they are given."""

    def executemany(self, statement: str, rows: Iterable[Any], /) -> object:
        """Runs a statement once for each row of values."""
        ...
