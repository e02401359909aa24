"""A whole pool on simulated time, driven by a seed; core and shells are those of production."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from random import Random

import msgspec

from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.stage import Stage
from kestrelctl.core.model.task_state import Counts
from kestrelctl.manager.commits import CLOSE_SECONDS
from kestrelctl.simulate.audit import Audit
from kestrelctl.simulate.faults import plan, plan_resizes
from kestrelctl.simulate.network import Server
from kestrelctl.simulate.nodes import Nodes
from kestrelctl.simulate.settings import WorldSettings, small
from kestrelctl.simulate.share_audit import ShareAudit
from kestrelctl.simulate.simulated_machine import SimulatedMachine
from kestrelctl.simulate.simulated_manager import SimulatedManager
from kestrelctl.simulate.simulation_clock import SimulationClock, StandsStill, fingerprint
from kestrelctl.simulate.store import SimulatedStore
from kestrelctl.simulate.truth import Fate, StageFate, fate, stage_fate
from kestrelctl.simulate.users import Operator, Owner
from kestrelctl.simulate.vigil import Vigil
from kestrelctl.simulate.workload import OWNERS

#: A manager that is told to stop does so in this time.
STOPS_WITHIN_SECONDS = CLOSE_SECONDS + 1.0
#: How often the world is looked at from outside.
LOOK_SECONDS = 0.5


class WorldReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a world.

    Attributes:
        problems: promises that were broken; empty if all is well.
        seconds: simulated time until all was quiet, acknowledgements included.
        busy_seconds: simulated time until the last job had ended.
        counts: tasks of all jobs by final state.
        executions: commands that were started.
        wasted: those without an accepted result: repetitions, and what died with its worker.
        actions: how much happened, in actions of the clock.
        story: what happened, if it was kept; `digest` is its fingerprint.
        guests: attempts that other pools took over, in a world of several.
    """

    seed: int
    problems: list[str]
    seconds: float
    busy_seconds: float
    jobs: int
    counts: Counts
    executions: int
    wasted: int
    actions: int
    digest: str
    story: list[str]
    guests: int = 0

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


class _Teller(logging.Handler):
    def __init__(self, clock: SimulationClock, audit: Audit) -> None:
        super().__init__()
        self._clock = clock
        self._audit = audit

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._clock.tell("log", text)
        if record.exc_info:
            self._audit.expect(False, f"{text}: {record.exc_info[1]!r}")


class World:
    """All nodes of one pool, and whatever happens to them."""

    def __init__(self, seed: int, settings: WorldSettings) -> None:
        self.settings = settings
        self.clock = clock = SimulationClock(keep_story=settings.keep_story)
        shares = None
        if settings.slots:
            starving_seconds = settings.config.starving_seconds
            shares = ShareAudit(settings.slots, settings.longest_seconds, starving_seconds)
        self.audit = audit = Audit(clock, calm=settings.calm, shares=shares)
        random = {
            part: Random(f"{seed} {part}")
            for part in ("network", "store", "manager", "workers", "users", "truth", "faults")
        }
        self._truth = random["truth"]
        # Draws of their own, so that all else stays that of the seed.
        self._stages = Random(f"{seed} stages")
        server = Server(clock, random["network"], settings.latency_seconds)
        store = SimulatedStore(clock, random["store"], settings.commit_seconds, audit.committed)
        self.nodes = nodes = Nodes(
            clock=clock,
            server=server,
            store=store,
            manager=SimulatedManager(
                clock,
                random["manager"],
                server,
                store,
                audit,
                settings.config,
                check=settings.check,
            ),
            workers=[
                SimulatedMachine(
                    f"w{which}",
                    clock,
                    random["workers"],
                    server,
                    audit,
                    ad,
                    partial(self._fate, f"w{which}"),
                    partial(self._stage_fate, f"w{which}"),
                    pulls=settings.machines_per_puller > 0
                    and which % settings.machines_per_puller == 0,
                    hidden=settings.hidden[which] if settings.hidden else None,
                )
                for which, ad in enumerate(settings.ads)
            ],
            owners=[
                Owner(name, clock, random["users"], server, audit)
                for name in dict.fromkeys([OWNERS[0], *(job.owner for job in settings.submissions)])
            ],
            operator=Operator(clock, random["users"], server, audit),
        )
        self.vigil = Vigil(nodes, audit, settings)
        nodes.manager.lease_ran_out = self.vigil.lease_ran_out
        for process in (nodes.manager, *nodes.owners, nodes.operator):
            process.start()
        for worker in nodes.workers:
            clock.after(random["workers"].uniform(0.0, settings.join_seconds), worker.start)
        for owner in nodes.owners:
            owner.plan(job for job in settings.submissions if job.owner == owner.name)
        nodes.operator.plan(settings.policies, settings.tokens, settings.shares)
        plan(nodes, random["faults"], settings.faults, settings.fault_seconds, settings.fault_kinds)
        # Draws of their own, so that all else stays that of the seed.
        resizes = -(-settings.faults // 4)
        plan_resizes(nodes, Random(f"{seed} resizes"), resizes, settings.fault_seconds)

    def _fate(self, worker: str, kind: str, index: int) -> Fate:
        if worker in self.nodes.broken:
            return Fate(0.001, Outcome.FAILED)
        if worker in self.nodes.hollow:
            return Fate(0.0001, Outcome.DONE)
        if worker in self.nodes.full:
            return Fate(0.001, Outcome.UNABLE)
        return fate(self._truth, kind, index)

    def _stage_fate(self, worker: str, stage: Stage) -> StageFate:
        if worker in self.nodes.broken:
            return StageFate(0.001, stage.tries, False)
        return stage_fate(self._stages, stage)

    def run(self) -> float:
        """Lets everything happen, then has peace; returns the seconds until all had ended."""
        try:
            return self._run()
        except StandsStill as error:
            self.audit.expect(False, f"time stands still: {error}")
            return self.clock.now - self.clock.start

    def _run(self) -> float:
        clock, nodes = self.clock, self.nodes
        if self.settings.faults:
            self._watch_until(clock.start + self.settings.fault_seconds)
            self._peace()
        deadline = clock.now + self.settings.patience_seconds
        while clock.now < deadline and not self._quiet():
            self._watch_until(clock.now + LOOK_SECONDS)
            active = nodes.store.jobs(states=["active"])
            for owner in nodes.owners:
                owner.give_up_hopeless(active)
                owner.release_held(active)
        self.audit.expect(self._quiet(), "the world does not come to rest")
        seconds = clock.now - clock.start
        manager, life = nodes.manager, nodes.manager.life
        manager.terminate()
        deadline = clock.now + STOPS_WITHIN_SECONDS
        while manager.alive and manager.life == life and clock.now < deadline:
            clock.run_until(clock.now + LOOK_SECONDS / 10)
        stopped = not manager.alive or manager.life != life
        self.audit.expect(stopped, "the manager does not stop when it is told to")
        self.audit.verdict(nodes.store)
        return seconds

    def _watch_until(self, moment: float) -> None:
        while self.clock.now < moment:
            self.clock.run_until(min(moment, self.clock.now + LOOK_SECONDS))
            self.vigil.look()

    def _peace(self) -> None:
        """Whatever was broken is mended."""
        nodes = self.nodes
        self.clock.tell("world", "has peace")
        nodes.broken.clear()
        nodes.full.clear()
        nodes.hollow.clear()
        nodes.server.start()
        nodes.store.slowness = 1.0
        nodes.store.full = False
        for process in (nodes.manager, *nodes.workers):
            process.heal()
            process.go_on()
            process.start()
        for worker in nodes.workers:
            worker.repeats_reports = False
            nodes.operator.resume(worker.address)

    def _quiet(self) -> bool:
        """All jobs have ended, everybody knows, and nobody will ask for more."""
        nodes = self.nodes
        pool = nodes.manager.pool
        return (
            pool is not None
            and not pool.state.jobs
            and not pool.state.ending
            and all(owner.settled for owner in nodes.owners)
            and not nodes.operator.open
            and all(worker.settled for worker in nodes.workers)
        )

    def close(self) -> None:
        """Ends all processes."""
        for process in self.nodes.processes:
            process.kill()


@contextlib.contextmanager
def log_told(clock: SimulationClock, audit: Audit) -> Iterator[None]:
    """What the shells log is part of the story; an error that nobody expected is a problem."""
    logger = logging.getLogger("kestrelctl")
    before = logger.level, logger.propagate
    teller = _Teller(clock, audit)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(teller)
    try:
        yield
    finally:
        logger.removeHandler(teller)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def run(seed: int, settings: WorldSettings | None = None) -> WorldReport:
    """Runs a world to its end.

    Args:
        seed: of everything that is left to chance; the same seed tells the same story.
        settings: the world; by default the small one of that seed.
    """
    world = World(seed, settings or small(seed))
    try:
        with log_told(world.clock, world.audit):
            seconds = world.run()
    except Exception as error:
        error.add_note(
            f"in the world of seed {seed}, after:\n" + "\n".join(world.clock.lines()[-50:])
        )
        raise
    finally:
        world.close()
    counts = Counts()
    jobs = world.nodes.store.jobs(limit=1_000_000)
    for job in jobs:
        counts.done += job.counts.done
        counts.failed += job.counts.failed
        counts.lost += job.counts.lost
        counts.cancelled += job.counts.cancelled
    executions = world.audit.executions
    story = world.clock.lines()
    return WorldReport(
        seed=seed,
        problems=world.audit.problems,
        seconds=seconds,
        busy_seconds=max((job.ended_at or 0.0 for job in jobs), default=world.clock.start)
        - world.clock.start,
        jobs=len(jobs),
        counts=counts,
        executions=len(executions),
        wasted=len(executions) - world.audit.accepted_results,
        actions=world.clock.actions,
        digest=fingerprint(story),
        story=story,
    )
