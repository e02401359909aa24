"""Decides when a pool tells others what it has free, and what of it."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.protocol.pools import MOST_CLASSES, LentClass, PoolAnnouncement

#: An amount that has changed by less than this share of what was told is no news.
NEWS_SHARE = 0.5


class Announcer:
    """Makes the announcements of one pool.

    Args:
        pool: its domain.
        epoch: the number of this start of its manager: later starts have higher numbers.
    """

    def __init__(self, pool: str, epoch: int, settings: FlockSettings) -> None:
        self._pool = pool
        self._settings = settings
        self._seq = epoch << 32
        self._told: PoolAnnouncement | None = None
        self._told_at = 0.0
        self.wake_at = 0.0

    def next(
        self, now: float, classes: Sequence[LentClass], *, willing: bool, ttl: int
    ) -> PoolAnnouncement | None:
        """The announcement that is due; None if there is nothing to tell.

        Args:
            classes: what the pool has and what is free of it.
            willing: whether it lends anything to anybody.
            ttl: how far it is to go.
        """
        settings = self._settings
        if self._told is not None:
            news = self._is_news(classes, willing=willing)
            wait = settings.pace_seconds if news else settings.announce_seconds
            due = self._told_at + wait
            if now < due:
                self.wake_at = due
                return None
        self._seq += 1
        shown = sorted(classes, key=lambda each: -each.machines)[:MOST_CLASSES] if willing else ()
        self._told = PoolAnnouncement(
            pool=self._pool,
            seq=self._seq,
            ttl=ttl,
            expires_seconds=settings.expiry_seconds,
            willing=willing,
            classes=tuple(shown),
        )
        self._told_at = now
        self.wake_at = now + settings.announce_seconds
        return self._told

    @property
    def latest(self) -> PoolAnnouncement | None:
        """The latest announcement; None if none holds."""
        return self._told

    def denial(self, why: str) -> PoolAnnouncement:
        """Tells a pool that it is lent nothing, and why: what others hear is not for it."""
        self._seq += 1
        return PoolAnnouncement(
            pool=self._pool,
            seq=self._seq,
            expires_seconds=self._settings.expiry_seconds,
            willing=False,
            denied=why,
        )

    def farewell(self) -> PoolAnnouncement:
        """Makes the announcement that the pool lends nothing any more, because it leaves.

        Nobody remembers then what it told before: if it comes back, that is news.
        """
        self._seq += 1
        self._told = None
        return PoolAnnouncement(pool=self._pool, seq=self._seq, expires_seconds=0.0, willing=False)

    def _is_news(self, classes: Sequence[LentClass], *, willing: bool) -> bool:
        told = self._told
        assert told is not None
        if told.willing != willing:
            return True
        if not willing:
            return False
        before = {each.id: each for each in told.classes}
        if len(classes) <= MOST_CLASSES and before.keys() != {each.id for each in classes}:
            return True
        return any(
            each.id in before and _differs(before[each.id].free, each.free) for each in classes
        )


def whole_of(cls: LentClass) -> LentClass:
    """Returns a class as if all of it were free: a pool that was told of it once knows no more."""
    free = {name: cls.machines * amount for name, amount in cls.ad.assets.items()}
    return LentClass(id=cls.id, ad=cls.ad, machines=cls.machines, free=free)


def _differs(told: dict[str, float], free: dict[str, float]) -> bool:
    """Whether one asset is there that was not, or is by half more or less."""
    for name in told.keys() | free.keys():
        before, after = told.get(name, 0.0), free.get(name, 0.0)
        if abs(after - before) > NEWS_SHARE * before:
            return True
    return False
