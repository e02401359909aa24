"""Pools that somebody has named, and that have not answered themselves.

The tellers take turns, one pool of each at a time: a neighbour that names a thousand pools that do
not exist delays those that another names by one try each.
"""

from __future__ import annotations

from kestrelctl.protocol.pools import LEAVES, MOST_POOLS

#: The most pools of one teller that wait: as many as one answer can name.
MOST_OF_TELLER = MOST_POOLS + LEAVES + 1
#: The most tellers whose pools wait.
MOST_TELLERS = 64
#: The most pools that rest at a time.
MOST_RESTING = 500
#: All pools that name themselves share one line.
_THEMSELVES = ""


class Candidates:
    """The lines of pools that wait to be tried, and the pools not to be tried for some time."""

    __slots__ = ("_lines", "_resting", "_waiting")

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, None]] = {}
        self._waiting: set[str] = set()
        #: The time until which hearsay of a pool that did not answer does not count.
        self._resting: dict[str, float] = {}

    def offer(self, domain: str, teller: str, now: float) -> bool:
        """Lines up a pool that was named; one that names itself is there, even if it rested before.

        Returns:
            False if there is no room for it.
        """
        if domain in self._waiting or (domain != teller and self.rests(domain, now)):
            return True
        who = _THEMSELVES if domain == teller else teller
        line = self._lines.get(who, {})
        if len(line) >= MOST_OF_TELLER or (not line and len(self._lines) >= MOST_TELLERS):
            return False
        self._lines[who] = line
        line[domain] = None
        self._waiting.add(domain)
        return True

    def take(self) -> str | None:
        """Takes out the next pool to try; None if there is none."""
        if not self._lines:
            return None
        teller, line = next(iter(self._lines.items()))
        domain = next(iter(line))
        del line[domain], self._lines[teller]
        if line:
            self._lines[teller] = line  # behind the others
        self._waiting.discard(domain)
        return domain

    def rest(self, domain: str, until: float) -> None:
        """Notes that a pool did not answer, or has left: hearsay does not count for a time."""
        self._resting.pop(domain, None)
        self._resting[domain] = until
        if len(self._resting) > MOST_RESTING:
            del self._resting[next(iter(self._resting))]

    def rests(self, domain: str, now: float) -> bool:
        """Whether hearsay of a pool does not count now."""
        return self._resting.get(domain, now) > now

    def answered(self, domain: str) -> None:
        """Notes that a pool is there."""
        self._resting.pop(domain, None)

    def __len__(self) -> int:
        return len(self._waiting)
