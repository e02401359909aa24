"""The settings of a world of several pools."""

from __future__ import annotations

from random import Random

import msgspec

from kestrel_worlds.settings import BadDay, WorldSettings, some_config
from kestrel_worlds.workload import MEBIBYTE, OWNERS, Submission
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job import guest
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, OnWorkerLost
from kestrelctl.core.model.worker import isolation
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.flock.rules.flock_settings import FlockSettings

#: The domains of the pools of a world, the first ones of these.
DOMAINS = ("alder", "birch", "cedar", "elm", "fir", "hazel")
#: The kinds of tasks of users of a flock, the usual ones more often.
_KINDS = ("medium", "medium", "second", "second", "long", "mixed", "short", "flaky", "poison")
_RARE_KINDS = ("killer",)
_GUESTS = (guest.TAG, *isolation.tags_of("plain"))


class RuleChange(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of a pool, put in force some time after the world's beginning, or taken out of it."""

    at_seconds: float
    name: str
    rule: FlockRule | None


class PoolPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One pool.

    Attributes:
        world: its workers, users and settings; faults are those of the whole flock.
        through: the pool through which it joins whenever its manager starts; empty if an admin has
            it join.
        joins: when an admin has it join, and through which pool.
        leaves: when an admin has it leave.
        rules: what an admin lets it lend and borrow.
    """

    domain: str
    world: WorldSettings
    through: str = ""
    joins: tuple[tuple[float, str], ...] = ()
    leaves: tuple[float, ...] = ()
    rules: tuple[RuleChange, ...] = ()

    @property
    def stays(self) -> bool:
        """Whether it is in the flock at the end."""
        last_leave = max(self.leaves, default=-1.0)
        return bool(self.through) or max((at for at, _ in self.joins), default=-1.0) > last_leave


class FlockWorldSettings(BadDay, frozen=True, kw_only=True):
    """A world of several pools.

    Attributes:
        flock: settings of how fast the flock lives.
        stream_seconds: bounds of the typical one-way delay between two servers.
        hostile: how often a pool that borrows sends what no honest one sends, within
            `fault_seconds`.
    """

    pools: list[PoolPlan]
    flock: FlockSettings
    patience_seconds: float = 3000.0
    stream_seconds: tuple[float, float] = (0.001, 0.05)
    hostile: int = 0


def small_flock(seed: int) -> FlockWorldSettings:
    """Makes two to six pools, of which some have much to do and others little, on a bad day."""
    random = Random(f"small flock {seed}")
    domains = DOMAINS[: random.choice((2, 2, 3, 3, 4, 5, 6))]
    fault_seconds = random.uniform(10.0, 40.0)
    minute_seconds = random.choice((2.0, 6.0, 6.0, 20.0))
    busy = set(random.sample(domains, random.randint(1, max(1, len(domains) // 2))))
    pools: list[PoolPlan] = []
    for domain in domains:
        # A pool that joined through one that has left for good may find nobody any more.
        stay = tuple(pool.domain for pool in pools if not pool.leaves)
        pools.append(_pool(random, domain, stay, fault_seconds, busy=domain in busy))
    return FlockWorldSettings(
        pools=pools,
        flock=FlockSettings(minute_seconds=minute_seconds, reclaim_minutes=0.5),
        faults=random.choice((0, 4, 8, 16, 32)),
        fault_seconds=fault_seconds,
        stream_seconds=random.choice(((0.0005, 0.005), (0.005, 0.1), (0.05, 0.3))),
        hostile=random.choice((0, 40)),
    )


def _pool(
    random: Random, domain: str, before: tuple[str, ...], fault_seconds: float, *, busy: bool
) -> PoolPlan:
    joins: tuple[tuple[float, str], ...] = ()
    leaves: tuple[float, ...] = ()
    through = random.choice(before) if before else domain
    if before and random.random() < 0.5:
        # An admin has it join, perhaps late; perhaps it leaves, and perhaps it comes again.
        at = random.choice((0.2, random.uniform(0.0, fault_seconds)))
        joins, through = ((at, through),), ""
        if random.random() < 0.5:
            left = random.uniform(at + 1.0, fault_seconds + 5.0)
            leaves = (left,)
            if random.random() < 0.5:
                joins = (*joins, (left + random.uniform(0.5, 15.0), random.choice(before)))
    tasks = random.randint(20, 60) if busy else random.randint(0, 12)
    return PoolPlan(
        domain=domain,
        world=WorldSettings(
            ads=_ads(random, random.randint(1, 2) if busy else random.randint(1, 4)),
            submissions=_jobs(random, tasks, fault_seconds),
            latency_seconds=random.choice(((0.0005, 0.005), (0.005, 0.1))),
            commit_seconds=random.choice(((0.001, 0.005), (0.01, 0.1))),
            config=msgspec.structs.replace(
                some_config(random), usage_seconds=random.choice((0.0, 1.0))
            ),
            machines_per_puller=random.choice((0, 0, 2)),
        ),
        through=through,
        joins=joins,
        leaves=leaves,
        rules=tuple(_rules(random, fault_seconds)) if random.random() < 0.4 else (),
    )


def _ads(random: Random, machines: int) -> list[WorkerAd]:
    kinds = [
        WorkerAd(
            assets={"cpus": float(cpus), "memory": cpus * 512.0 * MEBIBYTE},
            tags=_GUESTS if takes_guests else (),
        )
        for cpus, takes_guests in ((1, True), (2, True), (4, True), (2, False))
    ]
    weights = (3, 3, 3, 1)
    # Any task fits the first.
    return [kinds[2], *random.choices(kinds, weights, k=machines - 1)]


def _jobs(random: Random, tasks: int, within_seconds: float) -> list[Submission]:
    jobs: list[Submission] = []
    while tasks > 0:
        count = min(tasks, random.choice((1, 3, 8, 20)))
        tasks -= count
        kind = random.choice(_RARE_KINDS if random.random() < 0.04 else _KINDS)
        submission = Submission(
            at_seconds=random.uniform(0.5, within_seconds),
            spec=JobSpec(
                program=Program(argv=("task", "{}")),
                name=kind,
                count=count,
                items=tuple(f"line {i}" for i in range(count)) if random.random() < 0.2 else None,
                request={
                    "cpus": float(random.choice((0.5, 1, 1, 1, 2, 4))),
                    "memory": random.choice((0, 0, 100, 400)) * float(MEBIBYTE),
                },
                priority=random.choice((50, 100, 200)),
                max_failures=random.choice((1, 2, 4)),
                max_losses=random.choice((2, 5)),
                on_worker_lost=random.choice((OnWorkerLost.REQUEUE, OnWorkerLost.WAIT)),
            ),
            owner=random.choice(OWNERS[:2]),
            cancel_after_seconds=random.uniform(0.0, 15.0) if random.random() < 0.25 else None,
            cancel_tasks=tuple(range(0, count, 3)) if random.random() < 0.3 else (),
            retry_after_seconds=random.uniform(1.0, 20.0) if random.random() < 0.2 else None,
        )
        jobs.append(submission)
    return jobs


def _rules(random: Random, within_seconds: float) -> list[RuleChange]:
    """Draws rules that come and go; in the end there are none."""
    changes: list[RuleChange] = []
    for which in range(random.randint(1, 3)):
        name = f"rule {which}"
        rule = FlockRule(
            name=name,
            direction=random.choice(("lend", "borrow")),
            action=random.choice(("deny", "deny", "allow")),
            pools=(random.choice(DOMAINS[:3]),) if random.random() < 0.7 else (),
            users=random.choice(((), ("ada",))),
            max_cpus=random.choice((None, 1.0)),
            max_seconds=random.choice((None, None, 2.0)),
            lease_seconds=random.choice((None, 3.0)),
        )
        if rule.action == "deny":
            rule = FlockRule(
                name=name,
                direction=rule.direction,
                action="deny",
                pools=rule.pools,
                users=rule.users,
            )
        begins = random.uniform(0.0, within_seconds)
        changes.append(RuleChange(at_seconds=begins, name=name, rule=rule))
        ends = random.uniform(begins, within_seconds + 5.0)
        changes.append(RuleChange(at_seconds=ends, name=name, rule=None))
    return changes
