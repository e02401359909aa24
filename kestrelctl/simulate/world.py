"""A whole pool on simulated time, driven by a seed; the core in it is the production core."""

from __future__ import annotations

from random import Random

import msgspec

from kestrelctl.core.config import Config
from kestrelctl.core.model import Counts, JobSpec, WorkerAd
from kestrelctl.core.result import Outcome
from kestrelctl.simulate.audit import Audit
from kestrelctl.simulate.clock import Clock
from kestrelctl.simulate.faults import KINDS, Kind, plan
from kestrelctl.simulate.manager import Manager
from kestrelctl.simulate.network import Server
from kestrelctl.simulate.store import Store
from kestrelctl.simulate.truth import Fate, fate
from kestrelctl.simulate.users import Users
from kestrelctl.simulate.vigil import Vigil
from kestrelctl.simulate.worker import Worker
from kestrelctl.simulate.workload import Submission, some_ads, some_jobs

#: How often the world is looked at from outside.
LOOK_SECONDS = 0.5


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A world.

    Attributes:
        ads: one for each worker.
        submissions: the jobs, with their times and their owners' second thoughts.
        faults: how many things go wrong within the first `fault_seconds`.
        fault_kinds: which, and how often each, relative to the others.
        patience_seconds: how long after that everything must have come to its end.
        join_seconds: over how long the workers come in at the beginning.
        check: verify the pool's invariants after every event.
        keep_story: remember what happened, for `Report.story`.
    """

    ads: list[WorkerAd]
    submissions: list[Submission]
    faults: int = 0
    fault_seconds: float = 20.0
    fault_kinds: dict[Kind, float] = msgspec.field(default_factory=lambda: KINDS)
    patience_seconds: float = 600.0
    join_seconds: float = 0.5
    latency_seconds: tuple[float, float] = (0.0005, 0.02)
    commit_seconds: tuple[float, float] = (0.002, 0.02)
    config: Config = Config()
    check: bool = True
    keep_story: bool = True


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a world.

    Attributes:
        problems: promises that were broken; empty if all is well.
        seconds: simulated time until the last job had ended.
        executions: commands that were started, repetitions included.
        messages: what the simulation did, in actions of its clock.
        digest: fingerprint of the story.
    """

    seed: int
    problems: list[str]
    seconds: float
    jobs: int
    counts: Counts
    executions: int
    wasted: int
    actions: int
    digest: str
    story: list[str]

    def raise_problems(self, lines: int = 400) -> None:
        """Raises if a promise was broken.

        Raises:
            AssertionError: with the seed, the problems and the story up to the first of them.
        """
        if not self.problems:
            return
        first = next((i for i, line in enumerate(self.story) if " PROBLEM " in line), None)
        told = self.story if first is None else self.story[: first + 1]
        raise AssertionError(
            "\n".join([f"seed {self.seed}:", *self.problems, "the story:", *told[-lines:]])
        )


def small(seed: int) -> Settings:
    """A small world in which much goes wrong: 2 to 8 workers, 10 to 80 tasks."""
    random = Random(f"small {seed}")
    fault_seconds = random.uniform(5.0, 20.0)
    return Settings(
        ads=some_ads(random, random.randint(2, 8)),
        submissions=some_jobs(random, random.randint(10, 80), fault_seconds / 2),
        faults=random.choice((0, 4, 8, 16, 32)),
        fault_seconds=fault_seconds,
        patience_seconds=2000.0,
        latency_seconds=random.choice(((0.0005, 0.005), (0.005, 0.1), (0.05, 0.5))),
        commit_seconds=random.choice(((0.001, 0.005), (0.01, 0.1), (0.1, 1.0))),
        config=Config(
            min_beat_seconds=2.0,
            late_seconds=1.5,
            limbo_seconds=1.0,
            away_seconds=random.choice((3.0, 10.0)),
            forget_worker_seconds=random.choice((6.0, 60.0)),
            backoff_seconds=0.2,
            max_backoff_seconds=2.0,
            quarantine_failures=4,
            quarantine_fast_seconds=1.0,
            quarantine_seconds=3.0,
            max_quarantine_seconds=12.0,
        ),
    )


def large(seed: int, *, workers: int = 200, tasks: int = 5000, check: bool = False) -> Settings:
    """A pool of ordinary size on a bad day."""
    random = Random(f"large {seed}")
    submissions = [
        Submission(
            at_seconds=random.uniform(0.0, 5.0),
            spec=JobSpec(
                argv=("task", "{}"),
                name=name,
                count=tasks // 4,
                max_failures=3,
                priority=random.choice((50, 100, 200)),
            ),
        )
        for name in ("short", "medium", "mixed", "flaky")
    ]
    return Settings(
        ads=some_ads(random, workers),
        submissions=submissions,
        faults=40,
        fault_seconds=30.0,
        check=check,
        keep_story=False,
    )


class World:
    """All nodes of one pool, and whatever happens to them."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock(keep_story=settings.keep_story)
        self.audit = Audit(self.clock)
        self.users = Users(self.clock, self.audit)
        self.broken: set[str] = set()  #: workers that fail everything just now
        random = {
            part: Random(f"{seed} {part}")
            for part in ("network", "store", "manager", "workers", "truth", "faults")
        }
        self._truth = random["truth"]
        self.server = Server(self.clock, random["network"], settings.latency_seconds)
        self.store = Store(
            self.clock, random["store"], settings.commit_seconds, self.audit.committed
        )
        self.manager = Manager(
            self.clock,
            random["manager"],
            self.server,
            self.store,
            self.audit,
            settings.config,
            check=settings.check,
            answered=self.users.answered,
        )
        self.users.manager = self.manager
        self.workers = [
            Worker(
                f"w{which}",
                self.clock,
                random["workers"],
                self.server,
                self.audit,
                ad,
                lambda kind, job_id, index, name=f"w{which}": self._fate(name, kind, index),  # type: ignore[misc]
            )
            for which, ad in enumerate(settings.ads)
        ]
        self.vigil = Vigil(self)
        self.manager.start()
        for worker in self.workers:
            self.clock.after(random["workers"].uniform(0.0, settings.join_seconds), worker.start)
        self.users.plan(settings.submissions)
        plan(self, random["faults"], settings.faults, settings.fault_seconds, settings.fault_kinds)

    def _fate(self, worker: str, kind: str, index: int) -> Fate:
        if worker in self.broken:
            return Fate(0.001, Outcome.FAILED)
        return fate(self._truth, kind, index)

    def run(self) -> float:
        """Lets everything happen, then has peace; returns the seconds until all had ended."""
        clock = self.clock
        if self.settings.faults:
            self._watch_until(clock.start + self.settings.fault_seconds)
            self._peace()
        deadline = clock.now + self.settings.patience_seconds
        while clock.now < deadline and not self._quiet():
            self._watch_until(clock.now + LOOK_SECONDS)
            self.users.give_up_hopeless(self.store.tables.jobs(states=["active"]))
        self.audit.expect(self._quiet(), "the world does not come to rest")
        self.store.flush()
        self.audit.verdict(self.store.tables)
        return clock.now - clock.start

    def _watch_until(self, moment: float) -> None:
        while self.clock.now < moment:
            self.clock.run_until(min(moment, self.clock.now + LOOK_SECONDS))
            self.vigil.look()

    def _peace(self) -> None:
        """Whatever was broken is mended."""
        self.clock.tell("world", "has peace")
        self.broken.clear()
        self.server.start()
        self.store.slowness = 1.0
        for process in (self.manager, *self.workers):
            process.heal()
            process.go_on()
            process.start()
        for worker in self.workers:
            worker.repeats_reports = False
            self.users.resume(worker.name)

    def _quiet(self) -> bool:
        """All jobs have ended, and everybody knows."""
        pool = self.manager.pool
        return (
            len(self.users.submissions) == len(self.settings.submissions)
            and pool is not None
            and not pool.state.jobs
            and not self.users.open
            and self.store.quiet
            and all(worker.settled for worker in self.workers)
        )


def run(seed: int, settings: Settings | None = None) -> Report:
    """Runs a world to its end.

    Args:
        seed: of everything that is left to chance; the same seed tells the same story.
        settings: the world; by default the small one of that seed.
    """
    world = World(seed, settings or small(seed))
    seconds = world.run()
    counts = Counts()
    jobs = world.store.tables.jobs(limit=1_000_000)
    for job in jobs:
        counts.done += job.counts.done
        counts.failed += job.counts.failed
        counts.lost += job.counts.lost
        counts.cancelled += job.counts.cancelled
    executions = world.audit.executions
    return Report(
        seed=seed,
        problems=world.audit.problems,
        seconds=seconds,
        jobs=len(jobs),
        counts=counts,
        executions=len(executions),
        wasted=len(executions) - world.audit.accepted_results,
        actions=world.clock.actions,
        digest=world.clock.digest(),
        story=world.clock.lines(),
    )
