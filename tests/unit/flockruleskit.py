"""What tests of a flock's rules have in common: classes of machines, and what pools say of them."""

from __future__ import annotations

from typing import Any

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol.pools import LentClass, PoolAnnouncement

SMALL, LARGE = "0a1b2c3d4e5f", "5f4e3d2c1b0a"
#: A flock minute of the tests.
MINUTE = 60.0


def machines(
    free: float = 0.0, count: int = 10, cls: str = SMALL, cpus: float = 1.0, **others: Any
) -> LentClass:
    """So many machines that are alike, and how many processors of them are free."""
    ad = WorkerAd(assets={"cpus": cpus}, **others)
    return LentClass(id=cls, ad=ad, machines=count, free={"cpus": free} if free else {})


def says(
    pool: str, *classes: LentClass, seq: int = 1, willing: bool = True, seconds: float = 150.0
) -> PoolAnnouncement:
    """An announcement of a pool."""
    return PoolAnnouncement(
        pool=pool, seq=seq, expires_seconds=seconds, willing=willing, classes=classes
    )
