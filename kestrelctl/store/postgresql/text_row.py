"""A text of a manager in a row, so that whoever takes over finds it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import LiteralString

from kestrelctl.errors import StoreFull
from kestrelctl.store.postgresql.session import NOT_REACHED, Link, another_manager, explained

_WRITE: LiteralString = """
    INSERT INTO kept_texts (name, content) SELECT %s, %s FROM pool WHERE epoch = %s
    ON CONFLICT (name) DO UPDATE SET content = excluded.content
"""


class TextRow:
    """A `store.kept_text.KeptText`. Whoever uses it waits for the database, which is seldom.

    Args:
        connect: makes a connection.
        database: what messages call it.
        epoch: that of this manager, without which nothing is written.
    """

    def __init__(self, connect: Callable[[], Link], database: str, name: str, epoch: int) -> None:
        self._connect = connect
        self._database = database
        self._name = name
        self._epoch = epoch

    def read(self) -> str:
        with closing(self._connect()) as link, explained(self._database):
            query = "SELECT content FROM kept_texts WHERE name = %s"
            row = link.execute(query, (self._name,)).fetchone()
        return "" if row is None else str(row[0])

    def write(self, text: str) -> None:
        try:
            with closing(self._connect()) as link, explained(self._database):
                done = link.execute(_WRITE, (self._name, text, self._epoch)).rowcount
        except NOT_REACHED as error:
            raise StoreFull(cause=error.cause, hint=error.hint) from error
        if not done:
            raise another_manager(self._database)
