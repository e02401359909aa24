"""The order in which the sessions of one process start their attempts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

#: How many attempts a session may start before others have their turn: half of what waits at a
#: session at most (`Config.ahead_per_slot`), so that one turn ends about when its report is due.
STARTS_IN_A_TURN = 16


class StartOrder(Generic[T]):
    """Lets sessions take turns of several starts each.

    The results of a turn travel in one report, and what replaces them in one message from the
    manager. If sessions took turns of one start, nearly each task would cost two messages.

    A session within its turn goes before those that wait for theirs. Among those within a turn, the
    session that joined last goes first: so few are deep in work. The others have their turn in the
    order in which they came.
    """

    def __init__(self) -> None:
        self._left: dict[T, int] = {}  # starts left in a turn that has begun
        self._within: OrderedDict[T, None] = OrderedDict()
        self._waiting: OrderedDict[T, None] = OrderedDict()

    def add(self, session: T) -> None:
        """Adds a session. One that is there already keeps its place."""
        (self._within if session in self._left else self._waiting)[session] = None

    def take(self) -> T | None:
        """Takes the session that is to start one attempt; None if there is none."""
        if self._within:
            session, _ = self._within.popitem()
        elif self._waiting:
            session, _ = self._waiting.popitem(last=False)
        else:
            return None
        left = self._left.pop(session, STARTS_IN_A_TURN) - 1
        if left:
            self._left[session] = left
        return session

    def __len__(self) -> int:
        return len(self._within) + len(self._waiting)
