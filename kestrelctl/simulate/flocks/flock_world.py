"""Runs a flock of pools, from the first task to the last."""

from __future__ import annotations

from array import array
from random import Random

import msgspec

from kestrelctl.flock.rules.flock_settings import MINUTE_SECONDS, FlockSettings
from kestrelctl.simulate.flocks.agenda import Agenda
from kestrelctl.simulate.flocks.member import Member, Source
from kestrelctl.simulate.flocks.pool_model import PoolModel
from kestrelctl.simulate.flocks.topology import Topology
from kestrelctl.simulate.flocks.trace import trace

#: Of the source: between how many machines and sequences a pool has.
FEWEST, MOST = 25, 225


class FlockPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be simulated.

    Attributes:
        pools: how many.
        scale: by which the source's numbers of machines and sequences of each are multiplied.
        seed: of all chance.
        flocking: whether the pools know of each other.
        ttl: how far announcements go.
    """

    pools: int = 1000
    scale: float = 1.0
    seed: int = 1
    flocking: bool = True
    ttl: int = 1


class FlockWorld:
    """Some pools on a network."""

    def __init__(self, plan: FlockPlan) -> None:
        self.plan = plan
        self.agenda = Agenda()
        self.network = Topology(Random(f"{plan.seed} network"), plan.pools)
        self.models = [self._model(number) for number in range(plan.pools)]
        self.members: list[Member] = []
        if plan.flocking:
            self._flock()

    def _model(self, number: int) -> PoolModel:
        plan = self.plan
        random = Random(f"{plan.seed} pool {number}")
        machines, sequences = (
            max(1, round(plan.scale * random.uniform(FEWEST, MOST))) for _ in range(2)
        )
        at, lengths = array("d"), array("d")
        for task in trace(random, sequences):
            at.append(task.at * MINUTE_SECONDS)
            lengths.append(task.seconds * MINUTE_SECONDS)
        return PoolModel(number, machines, at, lengths, self.agenda)

    def _flock(self) -> None:
        plan = self.plan
        settings = FlockSettings(ttl=plan.ttl)
        for model in self.models:
            random = Random(f"{plan.seed} member {model.number}")
            far = self.network.row(model.number)
            member = Member(model, self.members, far, self.agenda, settings, random)
            model.meet(self.models, far, member)
            self.members.append(member)
        for member, table in zip(self.members, self._tables(), strict=True):
            member.hearers = [self.members[number] for number in table]
            for number in table:
                far = self.network.seconds(member.model.number, number)
                self.members[number].sources.append(Source(member, member.domain, far))
        random = Random(f"{plan.seed} phases")
        for member in self.members:
            member.start(random.uniform(0, settings.minute_seconds))

    def _tables(self) -> list[list[int]]:
        random = Random(f"{self.plan.seed} ids")
        ids = [f"{random.getrandbits(128):032x}" for _ in self.models]
        tables = []
        for number, own in enumerate(ids):
            far = self.network.row(number)
            slots: dict[tuple[int, str], int] = {}
            for other, name in enumerate(ids):
                if other == number:
                    continue
                row = next(i for i in range(32) if own[i] != name[i])
                slot = (row, name[row])
                if slot not in slots or far[other] < far[slots[slot]]:
                    slots[slot] = other
            tables.append(sorted(set(slots.values())))
        return tables

    def run(self) -> None:
        """Lets time pass until every task has ended."""
        while any(model.done < len(model.states) for model in self.models):
            self.agenda.run(self.agenda.now + 600)
