"""Machines on which only so many tasks can use an asset at once, and nobody says how many."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from poolkit import Attempt, PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import WorkerAd

NO_MORE = 75
STEP_SECONDS = 0.25


def join_unknown(driver: PoolDriver, name: str = "w", cpus: float = 100.0, **unknown: int) -> None:
    """A worker comes that has `db`, or these, and does not know how much."""
    ad = WorkerAd(assets={"cpus": cpus}, unknown=unknown or {"db": NO_MORE})
    driver.tell(ev.Joined(at=driver.now, worker=name, ad=ad, holds=[], incarnation="one"))


def ask_for(driver: PoolDriver, count: int, db: float = 1.0, **spec: object) -> int:
    """A job whose tasks ask for so much of it."""
    job = JobSpec(program=Program(argv=("true",)), count=count, request={"cpus": 1.0, "db": db})
    job = msgspec.structs.replace(job, **spec)
    driver.tell(ev.Submit(at=driver.now, request="r", owner="ada", spec=job))
    return driver.answers[-1].job_id


def estimate(driver: PoolDriver, name: str = "w", asset: str = "db") -> float:
    return driver.worker(name).assets[asset] / 1000


def refuse(driver: PoolDriver, name: str, *attempts: Attempt, status: int = NO_MORE) -> None:
    driver.report(name, *attempts, outcome=Outcome.FAILED, seconds=0.01, exit_code=status)


class Machine:
    """A worker's machine. What starts there while all is taken ends at once, and says so.

    Attributes:
        limit: how many tasks can use the asset at once.
        lasts: seconds that each task takes, in turn.
        most: how many did.
        refused: how many were refused.
        estimates: what the pool thought after each step.
    """

    def __init__(
        self,
        driver: PoolDriver,
        name: str,
        limit: int,
        lasts: Sequence[float] = (2.0, 2.3, 2.6, 2.9),
    ) -> None:
        self.driver = driver
        self.name = name
        self.limit = limit
        self.lasts = lasts
        self.most = self.done = self.refused = 0
        self.estimates: list[float] = []
        self._ends_at: dict[Attempt, float] = {}
        join_unknown(driver, name)

    def step(self) -> None:
        """Ends what is over, and starts what was sent."""
        driver = self.driver
        for attempt in [a for a, at in self._ends_at.items() if at <= driver.now]:
            del self._ends_at[attempt]
            self.done += 1
            driver.report(self.name, attempt)
        while fresh := [a for a in driver.held(self.name) if a not in self._ends_at]:
            if len(self._ends_at) < self.limit:
                number = fresh[0][0]
                self._ends_at[fresh[0]] = driver.now + self.lasts[number % len(self.lasts)]
                self.most = max(self.most, len(self._ends_at))
            else:
                self.refused += 1
                refuse(driver, self.name, fresh[0])
        self.estimates.append(estimate(driver, self.name))


def run(driver: PoolDriver, seconds: float, *machines: Machine) -> None:
    """Lets machines work for a while."""
    end = driver.now + seconds
    while driver.now < end:
        driver.now += STEP_SECONDS
        for machine in machines:
            driver.tell(ev.Heard(at=driver.now, worker=machine.name))
            machine.step()
        driver.tell(ev.Tick(at=driver.now))
