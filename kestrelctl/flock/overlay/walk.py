"""A walk to the own id: from some pool to the one that is nearest to it.

Each pool on the way is asked by the walker itself, and names the next one. A message that others
pass on would have to speak for somebody else than its sender.
"""

from __future__ import annotations

from kestrelctl.flock.overlay.pool_ids import pool_id, shared_digits
from kestrelctl.protocol.pools import DIGITS, MOST_WITHOUT

#: The most questions of one walk: far more than any honest way has.
MOST_STEPS = 40


class Walk:
    """One walk, which a lost message or a silent pool does not end.

    Args:
        own_id: the id to which it leads.
        first: the pool with which it begins.
    """

    __slots__ = ("_own_id", "_steps", "_tried", "path", "without")

    def __init__(self, own_id: int, first: str) -> None:
        self._own_id = own_id
        self._steps = 1
        self._tried = False
        #: The pools that were asked; all but the last have answered.
        self.path = [first]
        #: The pools that did not answer.
        self.without: list[str] = []

    @property
    def row(self) -> int:
        """The first row of which the pool at the end of the path is asked for pools.

        The rows above are known from the pool before it, which shares fewer digits.
        """
        if len(self.path) == 1:
            return 0
        return min(shared_digits(self._own_id, pool_id(self.path[-2])) + 1, DIGITS)

    def go_on(self, domain: str | None) -> bool:
        """Goes on to the pool that the last one has named; returns whether to ask it."""
        if domain is None or domain in self.path or domain in self.without:
            return False
        self.path.append(domain)
        self._tried = False
        return self._has_step()

    def go_back(self) -> bool:
        """Asks the last pool, which has not answered, again, and then the one before it."""
        if self._tried:
            self.without.append(self.path.pop())
        self._tried = not self._tried
        return bool(self.path) and len(self.without) <= MOST_WITHOUT and self._has_step()

    def _has_step(self) -> bool:
        self._steps += 1
        return self._steps <= MOST_STEPS
