"""Several pools on simulated time, driven by a seed; cores and shells are those of production."""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec

from kestrel_worlds.course import Course
from kestrel_worlds.faults import plan
from kestrel_worlds.flock_worlds import hostile_neighbours
from kestrel_worlds.flock_worlds.flock_nodes import FlockedPool
from kestrel_worlds.flock_worlds.flock_operator import FlockOperator
from kestrel_worlds.flock_worlds.flock_vigil import FlockVigil
from kestrel_worlds.flock_worlds.flock_world_settings import (
    FlockWorldSettings,
    PoolPlan,
    small_flock,
)
from kestrel_worlds.flock_worlds.flocked_manager import FlockedManager
from kestrel_worlds.flock_worlds.guest_audit import GuestAudit, PoolAudit
from kestrel_worlds.flock_worlds.pool_faults import KINDS
from kestrel_worlds.flock_worlds.streams import FlockServer
from kestrel_worlds.set_up import Chance, begin, set_up
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrel_worlds.vigil import Vigil
from kestrel_worlds.world_report import WorldReport

#: The minutes of the flock in which, after the last task has ended, loans run out and pools that
#: lost each other meet again.
CALM_MINUTES = 45.0


class WorldOfPools(Course):
    """All pools of a flock, and whatever happens to them."""

    def __init__(self, seed: int, settings: FlockWorldSettings) -> None:
        self.settings = settings
        self.whole = GuestAudit()
        self.pools: list[FlockedPool] = []
        clock = SimulationClock(keep_story=settings.keep_story)
        super().__init__(clock, settings, self.pools)
        streams = Random(f"{seed} streams")
        for each in settings.pools:
            made = self._pool(each, Chance(f"{seed} {each.domain}"))
            for other in self.pools:
                made.server.know(other.server, streams, settings.stream_seconds)
            self.pools.append(made)
        self.vigil = FlockVigil(self.pools, self.whole, settings.flock)
        for pool in self.pools:
            pool.manager.scheduled = partial(self.vigil.scheduled, pool.domain)
            begin(pool.nodes, pool.plan.world, Random(f"{seed} {pool.domain} joining"))
            pool.operator.plan_flock(pool.plan)
        plan(
            clock,
            self.pools,
            Random(f"{seed} faults"),
            settings.faults,
            settings.fault_seconds,
            KINDS,
            ended_per_second=0.3,
            most_seconds=20.0,
        )
        plan(
            clock,
            self.pools,
            Random(f"{seed} hostile"),
            settings.hostile,
            settings.fault_seconds,
            hostile_neighbours.KINDS,
        )

    def _pool(self, plan: PoolPlan, chance: Chance) -> FlockedPool:
        clock, world, domain = self.clock, plan.world, plan.domain
        audit = PoolAudit(domain, clock, self.whole)
        server = FlockServer(clock, chance.network, world.latency_seconds, domain)
        manager = FlockedManager(
            clock,
            chance.manager,
            server,
            SimulatedStore(clock, chance.store, world.commit_seconds, audit.committed),
            audit,
            world.config,
            self.whole,
            self.settings.flock,
            plan.through,
            check=world.check,
        )
        operator = FlockOperator(clock, chance.users, server, audit)
        nodes = set_up(world, manager, operator, chance, f"{domain}-")
        vigil = Vigil(nodes, audit, world)
        manager.lease_ran_out = vigil.lease_ran_out
        audit.workers = lambda: manager.pool.state.workers if manager.pool is not None else {}
        return FlockedPool(
            plan=plan,
            server=server,
            manager=manager,
            operator=operator,
            nodes=nodes,
            audit=audit,
            vigil=vigil,
        )

    @property
    def problems(self) -> list[str]:
        return self.whole.problems

    def look(self) -> None:
        super().look()
        self.vigil.look()

    def mend(self) -> None:
        super().mend()
        for pool in self.pools:
            for stream in pool.server.streams.values():
                stream.heal()

    def calm_down(self) -> None:
        self.until_rest(CALM_MINUTES * self.settings.flock.minute_seconds + 60.0, self._apart)

    def _apart(self) -> list[str]:
        """Lists what is left of loans, and pools of the flock that do not know each other."""
        found = [f"{pool.domain}: {what}" for pool in self.pools for what in pool.loans_left]
        members = [pool for pool in self.pools if pool.plan.stays]
        for pool in self.pools:
            flock = pool.manager.flock
            if flock is None:
                continue
            if flock.member != pool.plan.stays:
                found.append(f"{pool.domain} is a member: {flock.member}")
            known = set(flock.overlay.known()) if flock.member else set()
            wanted = {other.domain for other in members if other is not pool}
            if flock.member and known != wanted:
                found.append(f"{pool.domain} knows {sorted(known)}, not {sorted(wanted)}")
        return found


def run_flock(seed: int, settings: FlockWorldSettings | None = None) -> WorldReport:
    """Runs a world of several pools to its end.

    Args:
        seed: seed of everything that is left to chance; the same seed tells the same story.
        settings: the world; by default the small one of that seed.
    """
    world = WorldOfPools(seed, settings or small_flock(seed))
    return msgspec.structs.replace(world.run_through(seed), guests=len(world.whole.guests))
