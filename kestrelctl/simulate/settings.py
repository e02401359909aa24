"""What a simulated world consists of."""

from __future__ import annotations

from random import Random

import msgspec

from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.simulate.faults import KINDS, Kind
from kestrelctl.simulate.workload import (
    DB,
    NO_MORE_STATUS,
    PolicyChange,
    ShareSetting,
    Submission,
    TokenChange,
    some_ads,
    some_jobs,
    some_policies,
    some_shares,
    some_tokens,
    with_holds,
    with_owners,
    with_unknown,
)


class WorldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A world.

    Attributes:
        ads: one for each worker.
        hidden: for each worker, how much it really has of its assets of unknown capacity; or none.
        calm: nothing goes wrong, every worker has some of these assets, and tasks take one unit
            each, for much longer than messages travel: estimates of them come close to the truth.
        submissions: the jobs, with their times and their owners' second thoughts.
        policies: what an admin has tasks charged, and when.
        tokens: what an admin says that the whole pool has, and when.
        shares: what an admin sets for owners and groups, and when.
        faults: how many things go wrong within the first `fault_seconds`.
        fault_kinds: which, and how often each, relative to the others.
        patience_seconds: how long after that everything must have come to its end.
        join_seconds: over how long the workers come in at the beginning.
        latency_seconds: bounds of a connection's typical one-way delay.
        commit_seconds: bounds of a commit's duration while the disk is not slow.
        machines_per_puller: one of so many machines is sent no more than it asks for; 0 for none.
        config: of the pool.
        check: verify the pool's invariants after every event.
        keep_story: remember what happened, for `WorldReport.story`.
    """

    ads: list[WorkerAd]
    submissions: list[Submission]
    hidden: tuple[dict[str, float], ...] = ()
    calm: bool = False
    policies: tuple[PolicyChange, ...] = ()
    tokens: tuple[TokenChange, ...] = ()
    shares: tuple[ShareSetting, ...] = ()
    faults: int = 0
    fault_seconds: float = 20.0
    fault_kinds: dict[Kind, float] = msgspec.field(default_factory=lambda: KINDS)
    patience_seconds: float = 600.0
    join_seconds: float = 0.5
    latency_seconds: tuple[float, float] = (0.0005, 0.02)
    commit_seconds: tuple[float, float] = (0.002, 0.02)
    machines_per_puller: int = 0
    config: Config = Config()
    check: bool = True
    keep_story: bool = True


def small(seed: int) -> WorldSettings:
    """A small world in which much goes wrong: 2 to 8 workers, 10 to 80 tasks."""
    random = Random(f"small {seed}")
    fault_seconds = random.uniform(5.0, 20.0)
    ads = some_ads(random, random.randint(2, 8))
    jobs = some_jobs(random, random.randint(10, 80), fault_seconds / 2)
    jobs = with_holds(Random(f"holds {seed}"), jobs)
    ads, hidden, jobs = with_unknown(Random(f"unknown {seed}"), ads, jobs)
    return WorldSettings(
        ads=ads,
        hidden=hidden,
        submissions=with_owners(Random(f"owners {seed}"), jobs),
        policies=tuple(some_policies(Random(f"policies {seed}"), fault_seconds)),
        tokens=tuple(some_tokens(Random(f"tokens {seed}"), fault_seconds)),
        shares=tuple(some_shares(Random(f"shares {seed}"), fault_seconds)),
        faults=random.choice((0, 4, 8, 16, 32)),
        fault_seconds=fault_seconds,
        patience_seconds=2000.0,
        latency_seconds=random.choice(((0.0005, 0.005), (0.005, 0.1), (0.05, 0.5))),
        commit_seconds=random.choice(((0.001, 0.005), (0.01, 0.1), (0.1, 1.0))),
        config=Config(
            min_heartbeat_seconds=2.0,
            late_seconds=1.5,
            reconcile_seconds=1.0,
            away_seconds=random.choice((3.0, 10.0)),
            forget_worker_seconds=random.choice((6.0, 60.0)),
            backoff_seconds=0.2,
            max_backoff_seconds=2.0,
            quarantine_failures=4,
            quarantine_fast_seconds=1.0,
            quarantine_seconds=3.0,
            max_quarantine_seconds=12.0,
            usage_seconds=float(seed % 2),
        ),
        machines_per_puller=random.choice((0, 0, 2)),
    )


def calm(seed: int) -> WorldSettings:
    """One to four workers with an asset of unknown capacity, and enough that wants it."""
    random = Random(f"calm {seed}")
    hidden = tuple({DB: float(random.randint(1, 12))} for _ in range(random.randint(1, 4)))
    tasks = 30 * int(sum(there[DB] for there in hidden))
    kind = random.choice(("second", "medium"))
    spec = JobSpec(argv=("task",), name=kind, count=tasks, request={"cpus": 1.0, DB: 1.0})
    return WorldSettings(
        ads=[WorkerAd(assets={"cpus": 16.0}, unknown={DB: NO_MORE_STATUS})] * len(hidden),
        hidden=hidden,
        calm=True,
        submissions=[Submission(at_seconds=0.5, spec=spec)],
    )


def large(seed: int, *, workers: int = 200, tasks: int = 5000) -> WorldSettings:
    """A pool of ordinary size on a bad day; its invariants are not verified after every event."""
    random = Random(f"large {seed}")
    kinds = ("short", "medium", "long", "mixed", "flaky")
    return WorldSettings(
        ads=some_ads(random, workers),
        submissions=[
            Submission(
                at_seconds=random.uniform(0.0, 5.0),
                spec=JobSpec(
                    argv=("task", "{}"),
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
