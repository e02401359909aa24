"""A whole pool on simulated time, driven by a seed; core and shells are those of production."""

from __future__ import annotations

from random import Random

import msgspec

from kestrel_worlds.audit import Audit
from kestrel_worlds.course import Course, PoolOfWorld
from kestrel_worlds.faults import plan, plan_resizes
from kestrel_worlds.network import Server
from kestrel_worlds.set_up import Chance, begin, set_up
from kestrel_worlds.settings import WorldSettings, small
from kestrel_worlds.share_audit import ShareAudit
from kestrel_worlds.simulated_manager import SimulatedManager
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrel_worlds.users import Operator
from kestrel_worlds.vigil import Vigil
from kestrel_worlds.world_report import WorldReport


class World(Course):
    """All nodes of one pool, and whatever happens to them."""

    def __init__(self, seed: int, settings: WorldSettings) -> None:
        self.settings = settings
        clock = SimulationClock(keep_story=settings.keep_story)
        shares = None
        if settings.slots:
            starving_seconds = settings.config.starving_seconds
            shares = ShareAudit(settings.slots, settings.longest_seconds, starving_seconds)
        self.audit = audit = Audit(clock, calm=settings.calm, shares=shares)
        chance = Chance(str(seed))
        server = Server(clock, chance.network, settings.latency_seconds)
        store = SimulatedStore(clock, chance.store, settings.commit_seconds, audit.committed)
        manager = SimulatedManager(
            clock, chance.manager, server, store, audit, settings.config, check=settings.check
        )
        operator = Operator(clock, chance.users, server, audit)
        self.nodes = nodes = set_up(settings, manager, operator, chance)
        self.vigil = Vigil(nodes, audit, settings)
        super().__init__(clock, settings, [PoolOfWorld(nodes=nodes, audit=audit, vigil=self.vigil)])
        manager.lease_ran_out = self.vigil.lease_ran_out
        begin(nodes, settings, chance.workers)
        operator.plan(settings.policies, settings.tokens, settings.shares)
        faults, kinds = Random(f"{seed} faults"), settings.fault_kinds
        plan(clock, nodes, faults, settings.faults, settings.fault_seconds, kinds)
        resizes = -(-settings.faults // 4)
        plan_resizes(nodes, Random(f"{seed} resizes"), resizes, settings.fault_seconds)


def run(seed: int, settings: WorldSettings | None = None) -> WorldReport:
    """Runs a world to its end.

    Args:
        seed: seed of everything that is left to chance; the same seed tells the same story.
        settings: the world; by default the small one of that seed.
    """
    world = World(seed, settings or small(seed))
    report = world.run_through(seed)
    wasted = report.executions - world.audit.accepted_results
    return msgspec.structs.replace(report, wasted=wasted)
