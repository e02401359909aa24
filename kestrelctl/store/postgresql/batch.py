"""One transaction that is sent in as few messages as possible.

Statements that need no answer wait for one that does, or for the end; all that has gathered goes as
one message of several statements. So a commit of any number of tasks is one round trip.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import psycopg

from kestrelctl.store.postgresql.dialect import array, for_many_rows, translated
from kestrelctl.store.postgresql.session import Link, is_lost

#: Statements with more than so many bytes do not wait for others.
MOST_WAITING_BYTES = 16 << 20
#: The rows that one statement inserts, at most.
MOST_ROWS = 2_000


class Batch:
    """A `store.connection.TableConnection` for what one transaction writes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._cursor = psycopg.ClientCursor(link)
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._number = 0
        self._add(b"BEGIN ISOLATION LEVEL READ COMMITTED")

    def execute(self, statement: str, values: Any = (), /) -> BatchAnswer:
        """Runs a statement, at the latest when its answer is looked at."""
        found = translated(statement)
        self._add(self._with_values(found.text, found.values(values)))
        return BatchAnswer(self, self._number)

    def executemany(self, statement: str, rows: Iterable[Any], /) -> None:
        """Runs a statement for each row; an insertion for many rows at once."""
        many = for_many_rows(statement)
        if many is None:
            for row in rows:
                self.execute(statement, row)
            return
        all_rows = list(rows)
        if many.key:  # the last word on a row counts
            all_rows = list({tuple(row[n] for n in many.key): row for row in all_rows}.values())
        for first in range(0, len(all_rows), MOST_ROWS):
            columns = zip(*all_rows[first : first + MOST_ROWS], strict=True)
            arrays = [array(*each) for each in zip(columns, many.types, strict=True)]
            self._add(self._with_values(many.text, arrays))

    def commit(self) -> None:
        """Ends the transaction durably, with all that waits."""
        self._add(b"COMMIT")
        self._send()

    def roll_back(self) -> None:
        """Takes all back, unless the connection is lost, which does the same."""
        self._waiting.clear()
        if not is_lost(self._link):
            self._link.execute("ROLLBACK")

    def answer_to(self, number: int) -> psycopg.ClientCursor[tuple[Any, ...]]:
        """Sends what waits; the answer is that of the last statement."""
        assert number == self._number, "an answer is looked at before the next statement"
        if self._waiting:
            self._send()
        return self._cursor

    def _with_values(self, text: str, values: Any) -> bytes:
        return self._cursor.mogrify(text, values).encode()

    def _add(self, statement: bytes) -> None:
        self._number += 1
        self._waiting.append(statement)
        self._waiting_bytes += len(statement)
        if self._waiting_bytes > MOST_WAITING_BYTES:
            self._send()

    def _send(self) -> None:
        message = b";\n".join(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._cursor.execute(message)
        while self._cursor.nextset():
            pass


class BatchAnswer:
    """The answer to a statement of a `Batch`: `store.connection.Rows`."""

    def __init__(self, batch: Batch, number: int) -> None:
        self._batch = batch
        self._number = number

    @property
    def rowcount(self) -> int:
        """Number of rows that the statement has changed."""
        return self._batch.answer_to(self._number).rowcount

    def fetchone(self) -> Any:
        """The next row; None if there is no other."""
        return self._batch.answer_to(self._number).fetchone()

    def fetchall(self) -> list[Any]:
        """All other rows."""
        return self._batch.answer_to(self._number).fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())

    def close(self) -> None:
        """Nothing is kept."""
