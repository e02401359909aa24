"""Reads by connections of their own, one for each thread that reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg

from kestrelctl.store.connection import Rows
from kestrelctl.store.postgresql.plain import PlainLink
from kestrelctl.store.postgresql.session import Link, is_lost


class LinkReader:
    """A `store.connection.TableReader`.

    A connection that was lost is made anew, and what it was asked is asked again.
    """

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._of_thread = threading.local()
        self._links: list[Link] = []

    def execute(self, statement: str, values: Any = (), /) -> Rows:
        """Runs a statement."""
        try:
            return PlainLink(self._link()).execute(statement, values)
        except psycopg.OperationalError:
            if not is_lost(self._link(anew=False)):
                raise
            return PlainLink(self._link()).execute(statement, values)

    def close(self) -> None:
        """Ends all connections."""
        while self._links:
            self._links.pop().close()

    def _link(self, *, anew: bool = True) -> Link:
        """The connection of this thread.

        Args:
            anew: whether one that was lost is replaced.
        """
        link: Link | None = getattr(self._of_thread, "link", None)
        if link is None or (anew and is_lost(link)):
            if link in self._links:
                self._links.remove(link)
            link = self._of_thread.link = self._connect()
            self._links.append(link)
        return link
