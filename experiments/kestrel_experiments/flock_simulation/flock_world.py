"""Runs a flock of pools, from the first task to the last."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from random import Random

import msgspec

from kestrel_experiments.flock_simulation.agenda import Agenda
from kestrel_experiments.flock_simulation.core_pool import CorePool
from kestrel_experiments.flock_simulation.member import NOTICE_SECONDS, HeardSource, Member
from kestrel_experiments.flock_simulation.pool_model import PoolModel
from kestrel_experiments.flock_simulation.simulated_pool import SimulatedPool
from kestrel_experiments.flock_simulation.topology import Topology
from kestrel_experiments.flock_simulation.trace import trace_arrays
from kestrelctl.flock.rules.flock_settings import LOOK_MINUTES, MINUTE_SECONDS, FlockSettings
from kestrelctl.protocol.pools import PoolAnnouncement

#: Before the first task, the pools join within the first of these, and the overlay settles.
_GATHERING_SECONDS = 1200.0
_CALM_SECONDS = 600.0
#: The moments between which some fail or join, and how long those that fail are away.
_COMINGS_MINUTES = (100.0, 700.0)
AWAY_SECONDS = 1800.0
#: Longer than any task: what has begun elsewhere ends there.
LONGER_THAN_TASKS_MINUTES = 20.0
#: The source's limits for the numbers of machines and sequences of a pool.
FEWEST, MOST = 25, 225


class FlockWorldPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of what to simulate.

    Attributes:
        pools: number of pools.
        scale: factor for the source's numbers of machines and sequences of each pool.
        seed: seed of all random numbers.
        flocking: whether the pools know of each other.
        ttl: number of hops that announcements travel.
        look_seconds: time between two looks of a pool at what is free and what waits.
        reclaim_minutes: how long guests may go on while own tasks wait.
        failing: the share of pools that are gone for half an hour in the middle.
        joining: the share of pools that join only in the middle.
        core: whether each pool's queue and machines are those of production, not a model. Such
            pools do not fail.
    """

    pools: int = 1000
    scale: float = 1.0
    seed: int = 1
    flocking: bool = True
    ttl: int = 1
    look_seconds: float = LOOK_MINUTES * MINUTE_SECONDS
    reclaim_minutes: float = LONGER_THAN_TASKS_MINUTES
    failing: float = 0.0
    joining: float = 0.0
    core: bool = False


class FlockWorld:
    """Some pools on a network."""

    def __init__(self, plan: FlockWorldPlan) -> None:
        self.plan = plan
        self.agenda = Agenda(-_GATHERING_SECONDS - 2 * _CALM_SECONDS)
        self._random = Random(f"{plan.seed} flock")
        self._tables: list[list[int]] = []
        self.upkeep_per_minute = 0.0
        self.network = Topology(Random(f"{plan.seed} network"), plan.pools)
        self.models: Sequence[SimulatedPool]
        self._can_fail: Sequence[PoolModel] = ()
        if plan.core:
            self.models = [CorePool(*self._begins_with(number)) for number in range(plan.pools)]
        else:
            self.models = self._can_fail = [
                PoolModel(*self._begins_with(number)) for number in range(plan.pools)
            ]
        self.members: list[Member] = []
        if plan.flocking:
            self._flock()

    def _begins_with(self, number: int) -> tuple[int, int, array[float], array[float], Agenda]:
        """Draws a pool: returns its number, machines, tasks with their lengths, and the agenda."""
        plan = self.plan
        random = Random(f"{plan.seed} pool {number}")
        machines, sequences = (
            max(1, round(plan.scale * random.uniform(FEWEST, MOST))) for _ in range(2)
        )
        at, lengths = trace_arrays(random, sequences, MINUTE_SECONDS)
        return number, machines, at, lengths, self.agenda

    def _flock(self) -> None:
        plan = self.plan
        settings = FlockSettings(
            ttl=plan.ttl,
            look_minutes=plan.look_seconds / MINUTE_SECONDS,
            reclaim_minutes=plan.reclaim_minutes,
        )
        for model in self.models:
            random = Random(f"{plan.seed} member {model.number}")
            far = self.network.row(model.number)
            member = Member(model, self.members, far, self.agenda, settings, random)
            model.meet(self.models, far, member)
            self.members.append(member)
        self._gather()
        self._wire(None, None)
        for member in self.members:
            member.start(self._random.uniform(0, settings.minute_seconds))
        if not plan.failing and not plan.joining:
            for member in self.members:  # as nobody comes or goes, the overlay needs no upkeep
                member.keeps_up = False

    def _gather(self) -> None:
        """Lets the pools join, one after the other, each through one that it knows."""
        draw, plan = self._random, self.plan
        late = set(draw.sample(range(1, plan.pools), round(plan.joining * plan.pools)))
        present: list[Member] = []
        for member in self.members:
            if member.model.number in late:
                at = draw.uniform(*_COMINGS_MINUTES) * MINUTE_SECONDS
                self.agenda.at(at, self._comes, member, None)
                continue
            via = draw.choice(present) if present else None
            member.join(via)
            present.append(member)
            self.agenda.run(self.agenda.now + _GATHERING_SECONDS / plan.pools)
        self.agenda.run(-_CALM_SECONDS)
        told = sum(member.told for member in self.members)
        self.agenda.run(0.0)
        told = sum(member.told for member in self.members) - told
        self.upkeep_per_minute = told / len(present) / (_CALM_SECONDS / MINUTE_SECONDS)
        stays = [m.model.number for m in present]
        for number in draw.sample(stays[1:], round(plan.failing * plan.pools)):
            at = draw.uniform(*_COMINGS_MINUTES) * MINUTE_SECONDS
            self.agenda.at(at, self._fails, self.members[number], self._can_fail[number])

    def _comes(self, member: Member, _b: None) -> None:
        member.join(self.members[0])
        member.start(0.0)

    def _fails(self, member: Member, model: PoolModel) -> None:
        model.fail(NOTICE_SECONDS)
        member.leave()
        self.agenda.at(self.agenda.now + AWAY_SECONDS, self._recovers, member, model)

    def _recovers(self, member: Member, model: PoolModel) -> None:
        model.recover()
        self._comes(member, None)

    def _wire(self, _a: None, _b: None) -> None:
        """Notes which pools each pool's announcements reach, by the tables as they are now."""
        tables = [member.targets() if member.member else [] for member in self.members]
        if tables != self._tables:
            self._tables = tables
            heard = {
                (member, source.member, source.sender): source.heard
                for member in self.members
                for source in member.sources
            }
            sources: list[list[HeardSource]] = [[] for _ in self.members]
            for member, table in zip(self.members, tables, strict=True):
                self._spread(member, table, heard, sources)
            for member, of_member in zip(self.members, sources, strict=True):
                member.hears_of(of_member)
        if self.plan.failing or self.plan.joining:
            self.agenda.at(self.agenda.now + MINUTE_SECONDS, self._wire, None, None)

    def _spread(
        self,
        member: Member,
        table: list[int],
        heard: dict[tuple[Member, Member, str], PoolAnnouncement | None],
        sources: list[list[HeardSource]],
    ) -> None:
        """Notes which pools the announcements of one pool reach, through which pool, and how soon.

        Args:
            heard: the announcement that was last taken in of each source.
            sources: gets a new source for each pool that is reached.
        """
        own = member.model.number
        reached = {number: (self.network.seconds(own, number), own) for number in table}
        member.copies = len(table)
        if self.plan.ttl > 1:
            for via in table:
                for number in self._tables[via]:
                    if number in (own, via):
                        continue
                    member.copies += 1
                    far = self.network.seconds(own, via) + self.network.seconds(via, number)
                    if number not in reached or (
                        reached[number][1] != own and far < reached[number][0]
                    ):
                        reached[number] = (far, via)
        member.hearers = [self.members[number] for number in sorted(reached)]
        for number in sorted(reached):
            far, via = reached[number]
            source = HeardSource(member, self.members[via].domain, far)
            source.heard = heard.get((self.members[number], member, source.sender))
            sources[number].append(source)

    def run(self) -> None:
        """Lets time pass until every task has ended."""
        while any(model.done < len(model.states) for model in self.models):
            self.agenda.run(self.agenda.now + 600)
