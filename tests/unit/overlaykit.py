"""Pools of an overlay on simulated time, and the network between them, which may be bad."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from random import Random

from kestrelctl.flock.overlay.leaf_set import SIDE
from kestrelctl.flock.overlay.overlay import Overlay
from kestrelctl.flock.overlay.overlay_settings import OverlaySettings
from kestrelctl.flock.overlay.pool_ids import between, clockwise, pool_id
from kestrelctl.protocol.pools import OverlayMessage

MINUTE = 60.0
#: Everybody is at least so far away.
NEAREST_SECONDS = 0.002


class Network:
    """Pools lie on a square; a message takes as long as they are apart.

    Attributes:
        loss, repeats: the part of the messages that is lost, or comes twice.
        jitter_seconds: a message may take so much longer, and so come after a later one.
        bounces: whether a message to a pool that is not there comes back.
        cut: whether two pools cannot reach each other.
    """

    def __init__(self, seed: int, settings: OverlaySettings | None = None) -> None:
        self.random = Random(seed)
        self.settings = settings or OverlaySettings()
        self.now = 1000.0
        self.pools: dict[str, Overlay] = {}
        self.places: dict[str, tuple[float, float]] = {}
        self.loss = self.repeats = self.jitter_seconds = 0.0
        self.bounces = False
        self.cut: Callable[[str, str], bool] = lambda one, other: False
        self.delivered: Counter[str] = Counter()
        self._events: list[tuple[float, int, str, tuple[str, OverlayMessage | None] | None]] = []
        self._numbers = count()
        self._wakes: dict[str, float] = {}

    def start(self, domain: str, via: str = "") -> Overlay:
        """A pool starts; it joins the flock in which another is, if one is named."""
        self.places.setdefault(domain, (self.random.random(), self.random.random()))
        pool = Overlay(domain, Random(self.random.random()), self.settings)
        self.pools[domain] = pool
        self._wakes.pop(domain, None)
        if via:
            pool.join(via, self.now)
            self.post(domain)
        return pool

    def grow(self, pools: int) -> list[str]:
        """So many pools join one after the other, each by any that is there."""
        names = [f"p{number}.example.org" for number in range(pools)]
        for name in names:
            self.start(name, self.random.choice(sorted(self.pools)) if self.pools else "")
            self.run(2.0)
        return names

    def kill(self, domain: str) -> None:
        del self.pools[domain]

    def leave(self, domain: str) -> None:
        self.pools[domain].leave(self.now)
        self.post(domain)
        del self.pools[domain]

    def seconds(self, one: str, other: str) -> float:
        """How long a message takes."""
        (x, y), (u, v) = self.places[one], self.places.get(other, (0.0, 0.0))
        return NEAREST_SECONDS + 0.05 * ((x - u) ** 2 + (y - v) ** 2) ** 0.5

    def post(self, domain: str) -> None:
        """Sends what a pool has to say, and notes when it wants to be woken."""
        pool = self.pools[domain]
        for other, message in pool.take_sends():
            self.send(domain, other, message)
        wake = pool.wake_at()
        if wake is not None and wake < self._wakes.get(domain, wake + 1):
            self._wakes[domain] = wake
            heapq.heappush(self._events, (wake, next(self._numbers), domain, None))

    def send(self, sender: str, to: str, message: OverlayMessage) -> None:
        """A message sets out."""
        if self.cut(sender, to):
            return
        for _ in range(2 if self.random.random() < self.repeats else 1):
            if self.random.random() >= self.loss:
                after = self.seconds(sender, to) + self.random.random() * self.jitter_seconds
                event = (self.now + after, next(self._numbers), to, (sender, message))
                heapq.heappush(self._events, event)

    def run(self, seconds: float) -> None:
        """Time passes."""
        end = self.now + seconds
        events = self._events
        while events and events[0][0] <= end:
            self.now, _, domain, mail = heapq.heappop(events)
            pool = self.pools.get(domain)
            if mail is None:
                if pool is None or self._wakes.get(domain) != self.now:
                    continue
                del self._wakes[domain]
                pool.tick(self.now)
            else:
                sender, message = mail
                if pool is None:
                    self._send_back(domain, sender, message)
                    continue
                self.delivered[domain] += 1
                if message is None:
                    pool.unreachable(sender, self.now)
                else:
                    pool.hear(sender, message, self.now)
            self.post(domain)
        self.now = end

    def _send_back(self, nobody: str, sender: str, message: OverlayMessage | None) -> None:
        if self.bounces and message is not None:
            event = (self.now + NEAREST_SECONDS, next(self._numbers), sender, (nobody, None))
            heapq.heappush(self._events, event)

    # -- what is true
    # ------------------------------------------------------------------------------

    def true_leaves(self, domain: str) -> tuple[list[str], list[str]]:
        """The pools that are nearest on the ring, with larger and with smaller ids."""
        me = pool_id(domain)
        others = [other for other in self.pools if other != domain]
        larger = sorted(others, key=lambda other: clockwise(me, pool_id(other)))[:SIDE]
        smaller = sorted(others, key=lambda other: clockwise(pool_id(other), me))[:SIDE]
        return larger, smaller

    def wrong_leaves(self) -> list[str]:
        """The pools whose leaf set is not that."""
        return [
            domain
            for domain, pool in self.pools.items()
            if (pool._tables.leaves.larger(), pool._tables.leaves.smaller())
            != self.true_leaves(domain)
        ]

    def empty_slots(self) -> list[tuple[str, str]]:
        """(pool, another) of slots that are empty though the other one belongs there."""
        return [
            (domain, other)
            for domain, pool in self.pools.items()
            for other in self.pools
            if other != domain and pool._tables.routing.rival(other) is None
        ]

    def remembered_dead(self) -> list[tuple[str, str]]:
        """(pool, another) of what is known though it is not there."""
        return [
            (domain, other)
            for domain, pool in self.pools.items()
            for other in pool.known()
            if other not in self.pools
        ]

    def route(self, first: str, key: int) -> list[str]:
        """The pools on the way from one to the one whose id is nearest."""
        path = [first]
        while (after := self.pools[path[-1]].next_hop(key)) is not None:
            assert after not in path, f"in a circle: {[*path, after]}"
            path.append(after)
        return path

    def nearest(self, key: int) -> str:
        return min(self.pools, key=lambda domain: (between(pool_id(domain), key), domain))

    def is_settled(self) -> bool:
        return not (self.wrong_leaves() or self.empty_slots() or self.remembered_dead())

    def groups(self) -> list[set[str]]:
        """The pools that can find each other by what any of them remembers, the most first."""
        groups: list[set[str]] = []
        for domain, pool in self.pools.items():
            linked = {domain, *self.pools.keys() & {*pool.known(), *pool.missing()}}
            for group in [group for group in groups if group & linked]:
                groups.remove(group)
                linked |= group
            groups.append(linked)
        return sorted(groups, key=len, reverse=True)

    def settle(self, minutes: int) -> None:
        """Time passes until all is as it should be, or so long."""
        for _ in range(minutes // 10):
            self.run(10 * MINUTE)
            if self.is_settled():
                return


def sent(pools: Iterable[Overlay]) -> int:
    """Messages that pools have sent."""
    return sum(pool.sent.total() for pool in pools)
