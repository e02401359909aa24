"""What tests of lenders and borrowers have in common: guests, and workers that neighbours lend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.guest import TAG, GuestOf
from kestrelctl.core.model.worker.ad import WorkerAd

NEAR = "flock@near.example/0a1b2c3d4e5f"
FAR = "flock@far.example/5f4e3d2c1b0a"


def guest(user: str = "bob@home.example", group: str = "") -> GuestOf:
    """What is said of a guest."""
    return GuestOf(pool="home.example", job_id=7, user=user, group=group, loan="0a1b2c3d4e5f")


def visit(driver: PoolDriver, count: int = 1, user: str = "bob@home.example", **spec: Any) -> int:
    """A neighbour hands in a job of a user of its; returns its id here."""
    return driver.submit(count, owner=user, guest=guest(user), **spec)


def join(driver: PoolDriver, *names: str, tags: tuple[str, ...] = (), **offered: Any) -> None:
    """Workers of the pool's own say hello that run guests' tasks, too."""
    driver.join(*names, tags=(*tags, TAG), **offered)


def lend(
    driver: PoolDriver,
    jid: str = NEAR,
    seconds: float = 0.02,
    incarnation: str = "one",
    start: str = "",
    **assets: float,
) -> None:
    """A neighbour lends so much."""
    offered = {name: float(n) for name, n in ({"cpus": 1.0} | assets).items()}
    ad = WorkerAd(assets=offered, tags=(TAG,), distance_seconds=seconds, start=start)
    driver.tell(
        ev.Joined(
            at=driver.now, worker=jid, incarnation=incarnation, ad=ad, holds=[], claims=[], seals=[]
        )
    )


def run(driver: PoolDriver) -> Mapping[str, list[int]]:
    """Of which jobs each worker runs or holds something, workers in order of their addresses."""
    return {jid: driver.jobs_at(jid) for jid in sorted(driver.pool.workers)}


def recalled(driver: PoolDriver) -> dict[str, list[int]]:
    """What the last event had workers give back."""
    return {effect.worker: effect.numbers for effect in driver.of(fx.Recall)}
