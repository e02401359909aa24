"""Statements that are run at once, each by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kestrelctl.store.connection import Rows
from kestrelctl.store.postgresql.dialect import translated
from kestrelctl.store.postgresql.session import Link


class PlainLink:
    """A `store.connection.TableConnection` that waits for each statement."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def execute(self, statement: str, values: Any = (), /) -> Rows:
        """Runs a statement."""
        found = translated(statement)
        return self._link.execute(found.text, found.values(values))

    def executemany(self, statement: str, rows: Iterable[Any], /) -> None:
        """Runs a statement for each row."""
        for row in rows:
            self.execute(statement, row)
