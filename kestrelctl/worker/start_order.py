"""The order in which the sessions of one process start their attempts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class StartOrder(Generic[T]):
    """Depth first: the session that joined last starts next, so that few sessions are deep in work.

    Their reports then travel together, where reports from all sessions in turn would travel one by
    one. So that no session waits for ever, the caller takes the one that waits longest once in
    every slice.

    A session is fresh until it is taken for the first time, and warm from then on. Fresh sessions
    wait apart and are taken in the order in which they came.
    """

    def __init__(self) -> None:
        self._fresh: OrderedDict[T, None] = OrderedDict()
        self._warm: OrderedDict[T, None] = OrderedDict()
        self._taken_before: set[T] = set()

    def add(self, session: T) -> None:
        """Adds a session. One that waits already keeps its place."""
        (self._warm if session in self._taken_before else self._fresh)[session] = None

    def take_longest_waiting(self) -> T | None:
        """Takes the fresh session that waits longest; if there is none, the warm one that does.

        None if no session waits.
        """
        if not self:
            return None
        return self._taken((self._fresh or self._warm).popitem(last=False)[0])

    def take_latest(self) -> T | None:
        """Takes the warm session that came last; if there is none, the fresh one that came first.

        None if no session waits.
        """
        if not self:
            return None
        last = bool(self._warm)
        return self._taken((self._warm or self._fresh).popitem(last=last)[0])

    def _taken(self, session: T) -> T:
        self._taken_before.add(session)
        return session

    def __len__(self) -> int:
        return len(self._fresh) + len(self._warm)
