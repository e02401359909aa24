"""The settings of a simulated world."""

from __future__ import annotations

from random import Random

import msgspec

from kestrel_worlds.faults import CHECKPOINT_FAULTS, KINDS, RESTARTS, Kind
from kestrel_worlds.share_audit import CONTEST_SECONDS, FEW
from kestrel_worlds.truth import SECONDS
from kestrel_worlds.workload import (
    DB,
    GROUPS,
    LAST_SEATS,
    MANY_OWNERS,
    NO_MORE_STATUS,
    OWNERS,
    PolicyChange,
    ShareSetting,
    Submission,
    TokenChange,
    some_ads,
    some_jobs,
    some_policies,
    some_shares,
    some_tokens,
    with_expressions,
    with_holds,
    with_owners,
    with_pairs,
    with_parents,
    with_spans,
    with_stages,
    with_unknown,
)
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd

#: Short times, so that a world shows soon what takes much longer in most pools.
SOON = Config(
    min_heartbeat_seconds=2.0,
    late_seconds=1.5,
    reconcile_seconds=1.0,
    away_seconds=3.0,
    backoff_seconds=0.2,
    max_backoff_seconds=2.0,
)


class BadDay(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of a world, and how long they and their effects may last.

    Attributes:
        faults: how many faults begin within the first `fault_seconds`.
        patience_seconds: how long after that everything must have come to its end.
        keep_story: remember what happened, for `WorldReport.story`.
    """

    faults: int = 0
    fault_seconds: float = 20.0
    patience_seconds: float = 600.0
    keep_story: bool = True


class WorldSettings(BadDay, frozen=True, kw_only=True):
    """A world.

    Attributes:
        ads: one for each worker.
        hidden: for each worker, how much it really has of its assets of unknown capacity; or none.
        calm: whether nothing goes wrong, every worker has some of these assets, and tasks take one
            unit each, for much longer than messages travel: estimates of the assets come close to
            the truth.
        slots: how many tasks run at once, in a world where nothing goes wrong, nothing but shares
            decides who is next, and shares are verified; 0 in any other.
        submissions: the jobs, with their times and their owners' second thoughts.
        policies: the policies by which an admin has tasks charged, and when.
        tokens: the amounts that an admin says the whole pool has, and when.
        shares: the settings of an admin for owners and groups, and when.
        fault_kinds: the kinds of faults, and how often each comes, relative to the others.
        join_seconds: the time over which the workers come in at the beginning.
        latency_seconds: bounds of a connection's typical one-way delay.
        commit_seconds: bounds of a commit's duration while the disk is not slow.
        machines_per_puller: one of this many machines is sent no more than it asks for; 0 for none.
        config: configuration of the pool.
        check: verify the pool's invariants after every event.
    """

    ads: list[WorkerAd]
    submissions: list[Submission]
    hidden: tuple[dict[str, float], ...] = ()
    calm: bool = False
    slots: int = 0
    policies: tuple[PolicyChange, ...] = ()
    tokens: tuple[TokenChange, ...] = ()
    shares: tuple[ShareSetting, ...] = ()
    fault_kinds: dict[Kind, float] = msgspec.field(default_factory=lambda: KINDS)
    join_seconds: float = 0.5
    latency_seconds: tuple[float, float] = (0.0005, 0.02)
    commit_seconds: tuple[float, float] = (0.002, 0.02)
    machines_per_puller: int = 0
    config: Config = Config()
    check: bool = True

    @property
    def longest_seconds(self) -> float:
        """The longest time that a task takes."""
        return max(SECONDS[submission.spec.name][1] for submission in self.submissions)


def small(seed: int) -> WorldSettings:
    """Makes a small world in which much goes wrong: 2 to 8 workers, 10 to 80 tasks."""
    random = Random(f"small {seed}")
    fault_seconds = random.uniform(5.0, 20.0)
    ads = some_ads(random, random.randint(2, 8))
    jobs = some_jobs(random, random.randint(10, 80), fault_seconds / 2)
    jobs = with_holds(Random(f"holds {seed}"), jobs)
    ads, hidden, jobs = with_unknown(Random(f"unknown {seed}"), ads, jobs)
    jobs = with_spans(ads, jobs)
    ads, jobs = with_stages(Random(f"stages {seed}"), ads, jobs)
    jobs = with_owners(Random(f"owners {seed}"), jobs)
    jobs = with_parents(Random(f"parents {seed}"), jobs)
    jobs = with_pairs(Random(f"pairs {seed}"), jobs)
    ads, jobs = with_expressions(Random(f"expressions {seed}"), ads, jobs)
    return WorldSettings(
        ads=ads,
        hidden=hidden,
        submissions=jobs,
        policies=tuple(some_policies(Random(f"policies {seed}"), fault_seconds)),
        tokens=tuple(some_tokens(Random(f"tokens {seed}"), fault_seconds)),
        shares=tuple(some_shares(Random(f"shares {seed}"), fault_seconds)),
        faults=random.choice((0, 4, 8, 16, 32)),
        fault_seconds=fault_seconds,
        patience_seconds=2000.0,
        latency_seconds=random.choice(((0.0005, 0.005), (0.005, 0.1), (0.05, 0.5))),
        commit_seconds=random.choice(((0.001, 0.005), (0.01, 0.1), (0.1, 1.0))),
        config=msgspec.structs.replace(some_config(random), usage_seconds=float(seed % 2)),
        machines_per_puller=random.choice((0, 0, 2)),
    )


def some_config(random: Random) -> Config:
    """Makes the configuration of a small world: short times, also of quarantines."""
    return msgspec.structs.replace(
        SOON,
        away_seconds=random.choice((3.0, 10.0)),
        forget_worker_seconds=random.choice((6.0, 60.0)),
        quarantine_failures=4,
        quarantine_fast_seconds=1.0,
        quarantine_seconds=3.0,
        max_quarantine_seconds=12.0,
    )


def checkpointing(seed: int) -> WorldSettings:
    """Makes workers that are drained, killed, frozen and cut off; their tasks go on elsewhere."""
    random = Random(f"checkpointing {seed}")
    tags = ("checkpoints",)
    ads = [
        WorkerAd(assets={"cpus": float(random.choice((1, 2, 4)))}, tags=tags)
        for _ in range(random.randint(2, 6))
    ]
    jobs = [
        Submission(
            at_seconds=random.uniform(0.0, 5.0),
            spec=JobSpec(
                name="steps",
                count=random.choice((1, 4, 9)),
                max_failures=random.choice((1, 4)),
                max_losses=random.choice((2, 50)),
                program=Program(
                    argv=("task",),
                    checkpoints=("state",),
                    checkpoint_seconds=random.choice((1.0, 2.0)),
                    checkpoint_exit=goes_on,
                ),
            ),
            retry_after_seconds=random.choice((None, 15.0)),
            cancel_after_seconds=random.choice((None, None, None, 6.0)),
        )
        for goes_on in (85, 85, None)
    ]
    return WorldSettings(
        ads=ads,
        submissions=jobs,
        faults=random.choice((0, 8, 24)),
        fault_seconds=25.0,
        fault_kinds=CHECKPOINT_FAULTS,
        patience_seconds=2000.0,
        latency_seconds=random.choice(((0.0005, 0.005), (0.05, 0.5))),
        commit_seconds=random.choice(((0.001, 0.005), (0.1, 1.0))),
        config=msgspec.structs.replace(SOON, service_settled_seconds=5.0),
    )


def licensed(seed: int) -> WorldSettings:
    """Makes a world whose tokens go and come while long tasks hold some and managers restart."""
    random = Random(f"licensed {seed}")
    within_seconds = 25.0
    changes = [TokenChange(0.0, "seats", random.randint(1, 5))]
    for _ in range(random.randint(1, 3)):
        gone_at = random.uniform(1.0, within_seconds - 8.0)
        back_at = gone_at + random.uniform(1.0, 8.0)
        changes.append(TokenChange(gone_at, "seats", 0))
        changes.append(TokenChange(back_at, "seats", random.randint(1, 5)))
    changes.append(TokenChange(within_seconds + 1.0, "seats", LAST_SEATS))
    jobs = [
        Submission(
            at_seconds=random.uniform(0.0, 5.0),
            owner=owner,
            spec=JobSpec(
                program=Program(argv=("task",)),
                name="long",
                count=random.randint(1, 9),
                request={"cpus": 0.5, "seats": float(random.choice((1, 1, 2)))},
            ),
            cancel_after_seconds=random.choice((None, None, 12.0)),
        )
        for owner in (OWNERS[0], *OWNERS)
    ]
    return WorldSettings(
        ads=[WorkerAd(assets={"cpus": 2.0})] * random.randint(2, 5),
        submissions=jobs,
        tokens=tuple(sorted(changes, key=lambda change: change.at_seconds)),
        faults=random.choice((4, 12)),
        fault_seconds=within_seconds,
        fault_kinds=RESTARTS,
        patience_seconds=2000.0,
        latency_seconds=random.choice(((0.0005, 0.005), (0.05, 0.5))),
        commit_seconds=random.choice(((0.001, 0.005), (0.1, 1.0))),
        config=SOON,
    )


def calm(seed: int) -> WorldSettings:
    """Makes one to four workers with an asset of unknown capacity; many tasks want it."""
    random = Random(f"calm {seed}")
    hidden = tuple({DB: float(random.randint(1, 12))} for _ in range(random.randint(1, 4)))
    tasks = 30 * int(sum(there[DB] for there in hidden))
    kind = random.choice(("second", "medium"))
    spec = JobSpec(
        program=Program(argv=("task",)), name=kind, count=tasks, request={"cpus": 1.0, DB: 1.0}
    )
    return WorldSettings(
        ads=[WorkerAd(assets={"cpus": 16.0}, unknown={DB: NO_MORE_STATUS})] * len(hidden),
        hidden=hidden,
        calm=True,
        submissions=[Submission(at_seconds=0.5, spec=spec)],
    )


def shared(seed: int) -> WorldSettings:
    """Makes some owners, also in groups, who all want more for a little longer than an hour.

    Half a slot or more belongs to each: whatever a task takes is little beside an hour of that.
    """
    random = Random(f"shared {seed}")
    owners = MANY_OWNERS[: random.randint(2, 5)]
    shares = [
        ShareSetting(0.0, name, ShareChange(weight=random.choice((2.0, 4.0)))) for name in GROUPS
    ]
    shares += [
        ShareSetting(
            0.3,
            name,
            ShareChange(weight=random.choice((1.0, 2.0, 3.0))),
            random.choice(("", *GROUPS)),
        )
        for name in owners
    ]
    cpus, workers = random.choice(((1, 16), (2, 8), (4, 4), (16, 1)))
    return WorldSettings(
        ads=[WorkerAd(assets={"cpus": float(cpus)})] * workers,
        slots=cpus * workers,
        submissions=[
            Submission(
                at_seconds=1.0,
                spec=JobSpec(
                    program=Program(argv=("task",)),
                    name=random.choice(("long", "minute")),
                    count=50_000,
                ),
                owner=name,
                cancel_after_seconds=CONTEST_SECONDS + 10.0,
            )
            for name in owners
        ],
        shares=tuple(shares),
        patience_seconds=2 * CONTEST_SECONDS,
        config=Config(usage_half_life_seconds=random.choice((60.0, 3600.0, 86_400.0))),
        check=False,
        keep_story=False,
    )


def crowded(seed: int) -> WorldSettings:
    """Makes a world where one owner has 20,000 tasks, and others who come later have ten each."""
    random = Random(f"crowded {seed}")
    first, *others = MANY_OWNERS[: random.randint(2, 4)]
    kind = random.choice(("short", "medium", "second"))
    workers, cpus = random.choice(((10, 1), (20, 1), (5, 4), (2, 16)))
    many = JobSpec(program=Program(argv=("task",)), name=kind, count=20_000)
    few = msgspec.structs.replace(many, count=FEW)
    return WorldSettings(
        ads=[WorkerAd(assets={"cpus": float(cpus)})] * workers,
        slots=cpus * workers,
        submissions=[
            Submission(at_seconds=1.0, spec=many, owner=first, cancel_after_seconds=20.0),
            *(
                Submission(at_seconds=random.uniform(5.0, 15.0), spec=few, owner=name)
                for name in others
            ),
        ],
        check=False,
    )


def streaming(seed: int) -> WorldSettings:
    """Makes a world where small tasks take all that is free, and one comes for a whole worker."""
    random = Random(f"streaming {seed}")
    workers, cpus = random.randint(2, 4), 4
    small = JobSpec(program=Program(argv=("task",)), name="second", count=20_000)
    whole = msgspec.structs.replace(small, count=1, request={"cpus": float(cpus)})
    few, many = MANY_OWNERS[:2]
    at_seconds = random.uniform(5.0, 10.0)
    return WorldSettings(
        ads=[WorkerAd(assets={"cpus": float(cpus)})] * workers,
        slots=cpus * workers,
        submissions=[
            Submission(at_seconds=1.0, spec=small, owner=many, cancel_after_seconds=60.0),
            Submission(at_seconds=at_seconds, spec=whole, owner=few),
        ],
        config=Config(starving_seconds=random.uniform(5.0, 20.0)),
        check=False,
    )


def large(seed: int, *, workers: int = 200, tasks: int = 5000) -> WorldSettings:
    """Makes an ordinary pool on a bad day; its invariants are not verified after every event."""
    random = Random(f"large {seed}")
    kinds = ("short", "medium", "long", "mixed", "flaky")
    return WorldSettings(
        ads=some_ads(random, workers),
        submissions=[
            Submission(
                at_seconds=random.uniform(0.0, 5.0),
                spec=JobSpec(
                    program=Program(argv=("task", "{}")),
                    name=kind,
                    count=tasks // len(kinds),
                    max_failures=3,
                    priority=random.choice((50, 100, 200)),
                ),
            )
            for kind in kinds
        ],
        faults=60,
        fault_seconds=60.0,
        check=False,
        keep_story=False,
    )
