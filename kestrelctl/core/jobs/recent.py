"""The ends of a job's latest attempts, by the accounts of workers: to compare these.

Whether a machine or the job is at fault shows only beside others: at the same job, and at tasks
that were handed out in the same span of time, because tasks of an array are often alike in places.
"""

from __future__ import annotations

from collections import deque

import msgspec

#: The most stretches of a job that are remembered, whatever its size.
MOST_STRETCHES = 128


class Stretch(msgspec.Struct, gc=False):
    """The attempts that one account's workers reported of a job while no other's did.

    Attributes:
        account: of the workers.
        failed: whether the attempts failed fast; all of a stretch went alike.
        sent_at: when the first of them was handed out.
        rounds: how often something was handed out, after the account's last word, and came back.
            Tasks that travel together count once: they may be alike because they are neighbours.
        shortest_seconds, longest_seconds: run times.
    """

    account: str
    failed: bool
    sent_at: float
    rounds: int
    shortest_seconds: float
    longest_seconds: float


class Odds(msgspec.Struct, frozen=True):
    """One account's rounds beside those of others that were handed out meanwhile.

    Attributes:
        mine: rounds of the account, all of one kind.
        alike, unlike: rounds of others of that kind, and of the other kind.
    """

    mine: int
    alike: int
    unlike: int

    def chance(self) -> float:
        """The probability that only others have the other kind if all draw from one urn."""
        chance = 1.0
        for drawn in range(self.unlike):
            theirs = self.alike + self.unlike - drawn
            chance *= theirs / (self.mine + theirs)
        return chance


class Recent:
    """The latest stretches of one job, oldest first."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: deque[Stretch] = deque(maxlen=MOST_STRETCHES)

    def add(
        self,
        account: str,
        sent_at: float,
        shortest_seconds: float,
        longest_seconds: float,
        *,
        failed: bool,
        fresh: bool,
    ) -> None:
        """Adds attempts that were reported together and went alike.

        Args:
            sent_at: when the first of them was handed out.
            fresh: whether that was after the account's worker last added a round.
        """
        stretches = self._stretches
        if stretches:
            last = stretches[-1]
            if last.account == account and last.failed is failed:
                last.rounds += fresh
                if shortest_seconds < last.shortest_seconds:
                    last.shortest_seconds = shortest_seconds
                if longest_seconds > last.longest_seconds:
                    last.longest_seconds = longest_seconds
                return
        stretches.append(
            Stretch(account, failed, sent_at, int(fresh), shortest_seconds, longest_seconds)
        )

    def failures_of(self, account: str) -> Odds | None:
        """The account's latest failures in a row beside what others did meanwhile."""
        mine, since = 0, 0.0
        for stretch in reversed(self._stretches):
            if stretch.account == account:
                if not stretch.failed:
                    break
                mine, since = mine + stretch.rounds, stretch.sent_at
        if not mine:
            return None
        theirs = [s for s in self._stretches if s.account != account and s.sent_at >= since]
        alike = sum(s.rounds for s in theirs if s.failed)
        return Odds(mine, alike, sum(s.rounds for s in theirs) - alike)

    def successes_of(self, account: str) -> tuple[int, float, float] | None:
        """The account's rounds if it had nothing but successes.

        Returns:
            How many, when the first of them was handed out, and the longest run time.
        """
        own = [stretch for stretch in self._stretches if stretch.account == account]
        if not own or any(stretch.failed for stretch in own):
            return None
        rounds = sum(stretch.rounds for stretch in own)
        return rounds, own[0].sent_at, max(stretch.longest_seconds for stretch in own)

    def speeds(self, account: str, mine: int, since: float, slow_seconds: float) -> Odds:
        """The account's fast rounds beside what others needed meanwhile.

        Args:
            mine, since: as `successes_of` says.
            slow_seconds: an account that needs longer than that is slow.
        """
        theirs = [
            s
            for s in self._stretches
            if s.account != account and not s.failed and s.sent_at >= since
        ]
        slow = sum(s.rounds for s in theirs if s.shortest_seconds > slow_seconds)
        fast = sum(s.rounds for s in theirs) - slow
        return Odds(mine, fast, slow)
