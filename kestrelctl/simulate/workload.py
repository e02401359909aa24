"""What users of a small world want: jobs of every kind, and second thoughts about them."""

from __future__ import annotations

from random import Random

import msgspec

from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.spec import JobSpec, OnWorkerLost
from kestrelctl.simulate.truth import KINDS

MEBIBYTE = 1 << 20
#: What no machine has.
NOWHERE = ("abacus",)


class Submission(msgspec.Struct, frozen=True):
    """A job to be handed in, and what its owner does later."""

    at_seconds: float  #: after the world's beginning
    spec: JobSpec
    cancel_after_seconds: float | None = None
    retry_after_seconds: float | None = None


def some_ads(random: Random, n: int) -> list[WorkerAd]:
    """Machines of a few sorts; the first can run any task that `some_jobs` makes."""
    ads = [WorkerAd(assets=_assets(4, 1024 * MEBIBYTE), tags=("gpu", "linux"))]
    while len(ads) < n:
        tags = tuple(tag for tag in ("gpu", "linux") if random.random() < 0.5)
        memory_bytes = random.choice((0, 256, 1024)) * MEBIBYTE
        assets = _assets(random.choice((1, 1, 2, 4)), memory_bytes)
        ads.append(WorkerAd(assets=assets, tags=tags))
    return ads


def _assets(cpus: float, memory_bytes: int) -> dict[str, float]:
    return {"cpus": cpus} | ({"memory": memory_bytes} if memory_bytes else {})


def some_jobs(random: Random, tasks: int, within_seconds: float) -> list[Submission]:
    """Jobs with so many tasks together, handed in over a span of time."""
    found: list[Submission] = []
    while tasks > 0:
        count = min(tasks, random.choice((1, 3, 8, 20, 40)))
        tasks -= count
        found.append(_one(random, count, within_seconds))
    return found


def _one(random: Random, count: int, within_seconds: float) -> Submission:
    def sometimes(chance: float) -> bool:
        return random.random() < chance

    kind = random.choice(KINDS)
    never_runs = sometimes(0.05)
    spec = JobSpec(
        argv=("task", "{}"),
        name=kind,
        count=count,
        items=tuple(f"line {i}" for i in range(count)) if sometimes(0.2) else None,
        request=_assets(
            random.choice((0.5, 1, 1, 1, 2)), random.choice((0, 0, 0, 100, 200)) * MEBIBYTE
        ),
        requires=NOWHERE if never_runs else ("gpu",) if sometimes(0.2) else (),
        priority=random.choice((50, 100, 100, 200)),
        max_running=random.randint(1, 4) if sometimes(0.2) else None,
        max_failures=random.choice((1, 1, 2, 4)),
        max_losses=random.choice((1, 2, 5)),
        on_worker_lost=OnWorkerLost.WAIT if sometimes(0.3) else OnWorkerLost.REQUEUE,
    )
    cancelled = never_runs or sometimes(0.2)
    return Submission(
        at_seconds=random.uniform(0.0, within_seconds) if sometimes(0.7) else 0.0,
        spec=spec,
        cancel_after_seconds=random.uniform(0.0, 10.0) if cancelled else None,
        retry_after_seconds=random.uniform(0.1, 20.0)
        if sometimes(0.3) and not never_runs
        else None,
    )
