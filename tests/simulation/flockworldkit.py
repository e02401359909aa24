"""Pools of a flock on simulated time: the first has much to do, the second machines to lend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from kestrel_worlds.flock_worlds.flock_nodes import FlockedPool
from kestrel_worlds.flock_worlds.flock_world_settings import FlockWorldSettings, PoolPlan
from kestrel_worlds.flock_worlds.guest_audit import Guest
from kestrel_worlds.flock_worlds.world_of_pools import WorldOfPools
from kestrel_worlds.settings import SOON, WorldSettings
from kestrel_worlds.workload import MEBIBYTE, Submission
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job import guest
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker import isolation
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.flock.rules.flock_settings import FlockSettings

HOME, LENDER = "alder", "birch"
TAGS = (guest.TAG, *isolation.tags_of("plain"))


def machine(cpus: int = 4) -> WorkerAd:
    """A worker that takes guests."""
    return WorkerAd(assets={"cpus": float(cpus), "memory": 4096.0 * MEBIBYTE}, tags=TAGS)


def job(kind: str, count: int, at_seconds: float = 1.0, memory: int = 0) -> Submission:
    """Tasks of one processor each; of this memory, in MiB."""
    request = {"cpus": 1.0} | ({"memory": memory * float(MEBIBYTE)} if memory else {})
    spec = JobSpec(
        program=Program(argv=("task",)), name=kind, count=count, request=request, max_losses=5
    )
    return Submission(at_seconds=at_seconds, spec=spec)


def two_pools(
    jobs: Sequence[Submission],
    of_lender: Sequence[Submission] = (),
    *,
    leaves: float | None = None,
    minute_seconds: float = 6.0,
    faults: int = 0,
    hostile: int = 0,
    config: Config = SOON,
) -> FlockWorldSettings:
    """The first has one processor, the second four.

    Args:
        jobs: of the first.
        leaves: when the second leaves the flock.
        hostile: how often the first sends the second what no honest pool sends.
    """
    plans = [
        PoolPlan(
            domain=HOME,
            world=WorldSettings(ads=[machine(1)], submissions=list(jobs), config=config),
            through=HOME,
        ),
        PoolPlan(
            domain=LENDER,
            world=WorldSettings(ads=[machine()], submissions=list(of_lender), config=config),
            joins=((0.2, HOME),),
            leaves=() if leaves is None else (leaves,),
        ),
    ]
    return FlockWorldSettings(
        pools=plans,
        flock=FlockSettings(minute_seconds=minute_seconds, reclaim_minutes=0.5),
        faults=faults,
        hostile=hostile,
        fault_seconds=15.0,
    )


class TwoPools:
    """A world that a test drives.

    Attributes:
        home, lender: its pools.
    """

    def __init__(self, settings: FlockWorldSettings, seed: int = 1) -> None:
        self.world = WorldOfPools(seed, settings)
        self.home, self.lender = self.world.pools[:2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.world.close()

    def until(self, seconds: float) -> None:
        """Lets time pass, until so many seconds after the beginning."""
        self.world.watch_until(self.world.clock.start + seconds)

    @property
    def guests(self) -> list[Guest]:
        """All that there were."""
        return list(self.world.whole.guests.values())

    def restart(self, pool: FlockedPool, after_seconds: float = 0.5) -> None:
        """kill -9 of a manager, which is started again."""
        pool.manager.start_again(after_seconds)
        pool.manager.kill()

    def to_the_end(self) -> None:
        """Lets all come to its end; no promise is broken."""
        self.world.run()
        assert self.world.whole.problems == []
