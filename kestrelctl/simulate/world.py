"""A whole pool on simulated time, driven by a seed; the core in it is the production core."""

from __future__ import annotations

from random import Random

import msgspec

from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.task_state import Counts
from kestrelctl.simulate.audit import Audit
from kestrelctl.simulate.clock import Clock
from kestrelctl.simulate.faults import plan
from kestrelctl.simulate.manager import Manager
from kestrelctl.simulate.network import Server
from kestrelctl.simulate.settings import Settings, small
from kestrelctl.simulate.store import Store
from kestrelctl.simulate.truth import Fate, fate
from kestrelctl.simulate.users import Users
from kestrelctl.simulate.vigil import Vigil
from kestrelctl.simulate.worker import Worker

#: How often the world is looked at from outside.
LOOK_SECONDS = 0.5


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a world.

    Attributes:
        problems: promises that were broken; empty if all is well.
        seconds: simulated time until all was quiet.
        counts: tasks of all jobs by final state.
        executions: commands that were started.
        wasted: those without an accepted result: repetitions, and what died with its worker.
        actions: how much happened, in actions of the clock.
        story: what happened, if it was kept; `digest` is its fingerprint.
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
        head = f"seed {self.seed} breaks promises (the same seed and settings do it again):"
        raise AssertionError("\n".join([head, *self.problems, "the story:", *told[-lines:]]))


class World:
    """All nodes of one pool, and whatever happens to them."""

    def __init__(self, seed: int, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock(keep_story=settings.keep_story)
        self.audit = Audit(self.clock)
        self.users = Users(self.clock, self.audit)
        self.broken: set[str] = set()  #: workers that fail everything just now
        self.full: set[str] = set()  #: workers that can start nothing just now
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
        if worker in self.full:
            return Fate(0.001, Outcome.UNABLE)
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
        self.full.clear()
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
    try:
        seconds = world.run()
    except Exception as error:
        error.add_note(
            f"in the world of seed {seed}, after:\n" + "\n".join(world.clock.lines()[-50:])
        )
        raise
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
