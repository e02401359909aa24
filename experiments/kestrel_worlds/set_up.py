"""Makes a pool of a simulated world as its settings describe it, and begins it."""

from __future__ import annotations

from functools import partial
from random import Random

from kestrel_worlds.nodes import Nodes
from kestrel_worlds.settings import WorldSettings
from kestrel_worlds.simulated_machine import SimulatedMachine
from kestrel_worlds.simulated_manager import SimulatedManager
from kestrel_worlds.truth import Fate, StageFate, fate, stage_fate
from kestrel_worlds.users import Operator, Owner
from kestrel_worlds.workload import OWNERS
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.result import Outcome


class Chance:
    """The random generators of one pool: no part of it draws from another's."""

    def __init__(self, seed: str) -> None:
        self.network = Random(f"{seed} network")
        self.store = Random(f"{seed} store")
        self.manager = Random(f"{seed} manager")
        self.workers = Random(f"{seed} workers")
        self.users = Random(f"{seed} users")
        self.truth = Random(f"{seed} truth")
        self.stages = Random(f"{seed} stages")


def set_up(
    settings: WorldSettings,
    manager: SimulatedManager,
    operator: Operator,
    chance: Chance,
    prefix: str = "",
) -> Nodes:
    """Makes the pool of a manager, with its workers and owners; none of them runs yet.

    Args:
        prefix: prefix of the names of workers.
    """
    clock, server, audit = manager.clock, manager.server, manager.audit
    nodes = Nodes(
        clock=clock,
        server=server,
        store=manager.store,
        manager=manager,
        workers=[],
        owners=[
            Owner(name, clock, chance.users, server, audit)
            for name in dict.fromkeys([OWNERS[0], *(job.owner for job in settings.submissions)])
        ],
        operator=operator,
    )
    for which, ad in enumerate(settings.ads):
        name = f"{prefix}w{which}"
        machine = SimulatedMachine(
            name,
            clock,
            chance.workers,
            server,
            audit,
            ad,
            partial(_fate, nodes, chance.truth, name),
            partial(_stage_fate, nodes, chance.stages, name),
            pulls=settings.machines_per_puller > 0 and which % settings.machines_per_puller == 0,
            hidden=settings.hidden[which] if settings.hidden else None,
        )
        nodes.workers.append(machine)
    return nodes


def begin(nodes: Nodes, settings: WorldSettings, joining: Random) -> None:
    """Starts the processes of a pool, and gives its owners their plans."""
    for process in (nodes.manager, *nodes.owners, nodes.operator):
        process.start()
    for worker in nodes.workers:
        nodes.clock.after(joining.uniform(0.0, settings.join_seconds), worker.start)
    for owner in nodes.owners:
        owner.plan(job for job in settings.submissions if job.owner == owner.name)


def _fate(nodes: Nodes, truth: Random, worker: str, kind: str, index: int) -> Fate:
    if worker in nodes.broken:
        return Fate(0.001, Outcome.FAILED)
    if worker in nodes.hollow:
        return Fate(0.0001, Outcome.DONE)
    if worker in nodes.full:
        return Fate(0.001, Outcome.UNABLE)
    return fate(truth, kind, index)


def _stage_fate(nodes: Nodes, truth: Random, worker: str, stage: Stage) -> StageFate:
    if worker in nodes.broken:
        return StageFate(0.001, stage.tries, False)
    return stage_fate(truth, stage)
