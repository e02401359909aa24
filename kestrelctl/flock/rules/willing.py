"""The announcements that a pool has heard: who has something free, and until when that holds.

What a pool says of itself outranks what others say of it: an announcement that somebody forwards
never replaces one that the pool itself has sent and that still holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from math import inf, log
from typing import TYPE_CHECKING, TypeVar

import msgspec

from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.core.pacing.pace import Pace
from kestrelctl.protocol.pools import PoolAnnouncement

if TYPE_CHECKING:
    from random import Random

    from kestrelctl.core.model.worker.ad import WorkerAd

#: The most pools that are remembered.
MOST_POOLS = 2_000
#: The most announcements of one sender that count: in a second on average, and at once.
RATE = 20.0
BURST = 200.0
#: The most others of which a pool is told that asks around, and the least time to the next answer.
MOST_PASSED_ON = 16
ANSWER_PAUSE_SECONDS = 1.0
#: Round trips that differ by less than this factor are equal.
EQUAL_FACTOR = 1.25
#: All round trips below this are equal, too.
SHORTEST_SECONDS = 0.0005

#: What becomes of an announcement.
NEW, OWN, OLD, HEARSAY, ABSURD, FLOOD = "new", "own", "old", "hearsay", "absurd", "flood"
_FACTOR = log(EQUAL_FACTOR)
Item = TypeVar("Item")


class HeardPool:
    """The latest announcement of a pool.

    Attributes:
        direct: the pool itself has sent it.
        sound: the ads of its classes, also while it lends nothing.
        expires_at: it holds until then.
    """

    __slots__ = ("direct", "expires_at", "heard_at", "said", "sound")

    def __init__(
        self,
        said: PoolAnnouncement,
        now: float,
        *,
        direct: bool,
        before: HeardPool | None = None,
    ) -> None:
        self.said = said
        self.sound: dict[str, WorkerAd] = {each.id: each.ad for each in said.classes}
        if before is not None and not self.sound:
            self.sound = before.sound
        self.heard_at = now
        self.expires_at = now + said.expires_seconds
        self.direct = direct


class WillingList:
    """The announcements that hold.

    Args:
        own: the domain of the pool itself.
        random: shuffles pools that are equally near.
    """

    def __init__(self, own: str, random: Random) -> None:
        self._own = own
        self._random = random
        self._heard: dict[str, HeardPool] = {}
        #: The highest number that each pool itself has sent: nothing that was said is heard again.
        self._latest: dict[str, int] = {}
        self._paces: dict[str, Pace] = {}
        self._answered_until: dict[str, float] = {}
        #: What became of all announcements.
        self.counts: Counter[str] = Counter()

    def hear(self, said: PoolAnnouncement, sender: str, now: float) -> str:
        """Takes an announcement in.

        Args:
            sender: the pool that sent it, as the server vouches for.

        Returns:
            NEW if it is to be forwarded while its TTL lasts, or why it was dropped.
        """
        found = self._judge(said, sender, now)
        self.counts[found] += 1
        return found

    def _judge(self, said: PoolAnnouncement, sender: str, now: float) -> str:
        if not self._may_say(sender, now):
            return FLOOD
        pool = said.pool
        if pool == self._own:
            return OWN
        direct = sender == pool
        known = self._heard.get(pool)
        if known is not None and said.seq <= known.said.seq and (known.direct or not direct):
            return OLD
        if said.seq <= self._latest.get(pool, -1):
            return OLD
        if not direct and known is not None and known.direct and now < known.expires_at:
            return HEARSAY
        if _is_absurd(said, known):
            return ABSURD
        if known is None and len(self._heard) >= MOST_POOLS:
            self._make_room(now)
            if len(self._heard) >= MOST_POOLS:
                return FLOOD
        if direct:
            self._latest[pool] = said.seq
        self._heard[pool] = HeardPool(said, now, direct=direct, before=known)
        return NEW

    def _may_say(self, sender: str, now: float) -> bool:
        pace = self._paces.get(sender)
        if pace is None:
            pace = self._paces[sender] = Pace(RATE, BURST)
        return pace.takes(now)

    def _make_room(self, now: float) -> None:
        self.expire(now)
        if len(self._heard) >= MOST_POOLS:
            for pool in [pool for pool, heard in self._heard.items() if not heard.direct][:100]:
                del self._heard[pool]

    def expire(self, now: float) -> None:
        """Forgets the announcements that do not hold any more."""
        for pool in [pool for pool, heard in self._heard.items() if heard.expires_at <= now]:
            del self._heard[pool]
        if len(self._latest) > 2 * MOST_POOLS:
            self._latest = {pool: n for pool, n in self._latest.items() if pool in self._heard}
        if len(self._paces) > 2 * MOST_POOLS:
            self._paces.clear()

    def dropped(self) -> dict[str, int]:
        """Counts the dropped announcements, by reason."""
        return {why: n for why, n in self.counts.items() if why != NEW}

    def forget(self, pool: str) -> None:
        """Forgets a pool that has left, or cannot be reached."""
        self._heard.pop(pool, None)

    def get(self, pool: str, now: float) -> HeardPool | None:
        """The announcement of a pool that holds; None if there is none."""
        heard = self._heard.get(pool)
        return heard if heard is not None and now < heard.expires_at else None

    def holding(self, now: float) -> list[HeardPool]:
        """All announcements that hold."""
        return [heard for heard in self._heard.values() if now < heard.expires_at]

    def to_pass_on(self, asker: str, now: float) -> list[PoolAnnouncement]:
        """Returns what pools with something free have said themselves, for one that asks around.

        It is told nothing for a while after the last answer.
        """
        if now < self._answered_until.get(asker, now):
            return []
        if len(self._answered_until) >= MOST_POOLS:
            self._answered_until.clear()
        self._answered_until[asker] = now + ANSWER_PAUSE_SECONDS
        found: list[PoolAnnouncement] = []
        for pool, heard in self._heard.items():
            said = heard.said
            holds = heard.direct and said.willing and now < heard.expires_at and pool != asker
            if holds and any(cls.free.get("cpus", 0.0) > 0.0 for cls in said.classes):
                left = heard.expires_at - now
                found.append(msgspec.structs.replace(said, ttl=1, expires_seconds=left))
        self._random.shuffle(found)
        return found[:MOST_PASSED_ON]

    def nearest_first(
        self, proximity_seconds: Callable[[str], float | None], now: float
    ) -> list[HeardPool]:
        """The willing pools, the nearest first, shuffled among equals.

        Args:
            proximity_seconds: the round trip to a pool; None if it is not known: those come last.
        """
        willing = [
            (proximity_seconds(pool), heard)
            for pool, heard in self._heard.items()
            if heard.said.willing and now < heard.expires_at
        ]
        return list(nearest_rings_first(rings_of(willing), self._random))


def rings_of(items: Iterable[tuple[float | None, Item]]) -> list[list[Item]]:
    """Puts items together that are equally near; the nearest come first.

    Args:
        items: the round trip to each, None if it is not known, and the item.
    """
    rings: dict[float, list[Item]] = {}
    for seconds, item in items:
        rings.setdefault(_nearness(seconds), []).append(item)
    return [rings[nearness] for nearness in sorted(rings)]


def nearest_rings_first(rings: Iterable[Sequence[Item]], random: Random) -> Iterator[Item]:
    """Yields items ring by ring; those of one ring in any order, drawn when it is their turn."""
    draw = random.random
    for ring in rings:
        left = list(ring)
        while left:
            place = int(draw() * len(left))
            yield left[place]
            left[place] = left[-1]
            left.pop()


def _is_absurd(said: PoolAnnouncement, known: HeardPool | None) -> bool:
    """Whether more is free than there is, or machines could be no worker of any pool.

    Args:
        known: what was found sound before: it is not looked at again.
    """
    sound = known.sound if known is not None else {}
    for each in said.classes:
        before = sound.get(each.id)
        if before is not each.ad and before != each.ad and problem_with_ad(each.ad) is not None:
            return True
        whole = each.ad.assets
        for name, amount in each.free.items():
            if amount > each.machines * whole.get(name, 0.0) * 1.000001:
                return True
    return False


@lru_cache(maxsize=MOST_POOLS)
def _nearness(seconds: float | None) -> float:
    if seconds is None:
        return inf
    return float(int(log(max(seconds, SHORTEST_SECONDS) / SHORTEST_SECONDS) / _FACTOR))
