"""Pools that somebody has named, and that have not answered themselves.

They are tried one of each teller in turn: a neighbour that names a thousand pools that do not
exist delays those that another names by one try each.
"""

from __future__ import annotations

from kestrelctl.protocol.pools import LEAVES, MOST_POOLS

#: Pools that wait of one teller: all that one answer can name.
MOST_OF_TELLER = MOST_POOLS + LEAVES + 1
#: Tellers whose pools wait.
MOST_TELLERS = 64
#: Pools that rest at a time.
MOST_RESTING = 500
#: All that name themselves share one line.
_THEMSELVES = ""


class Candidates:
    """The lines of those that wait to be tried, and who is not to be tried for some time."""

    __slots__ = ("_lines", "_resting", "_waiting")

    def __init__(self) -> None:
        self._lines: dict[str, dict[str, None]] = {}
        self._waiting: set[str] = set()
        #: Until when hearsay of a pool that did not answer is worth nothing.
        self._resting: dict[str, float] = {}

    def offer(self, domain: str, teller: str, now: float) -> bool:
        """A pool was named, perhaps by itself: then it is there, however it was before.

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
        """The next to try."""
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
        """A pool did not answer, or has left: what others say of it does not count for a time."""
        self._resting.pop(domain, None)
        self._resting[domain] = until
        if len(self._resting) > MOST_RESTING:
            del self._resting[next(iter(self._resting))]

    def rests(self, domain: str, now: float) -> bool:
        """Whether hearsay of a pool does not count now."""
        return self._resting.get(domain, now) > now

    def answered(self, domain: str) -> None:
        """A pool is there."""
        self._resting.pop(domain, None)

    def __len__(self) -> int:
        return len(self._waiting)
