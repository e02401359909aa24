"""Several pools on simulated time, driven by a seed; cores and shells are those of production."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.stage import Stage
from kestrelctl.core.model.task_state import Counts
from kestrelctl.simulate.flock_worlds.flock_nodes import FlockedPool
from kestrelctl.simulate.flock_worlds.flock_operator import FlockOperator
from kestrelctl.simulate.flock_worlds.flock_vigil import FlockVigil
from kestrelctl.simulate.flock_worlds.flock_world_settings import (
    FlockWorldSettings,
    PoolPlan,
    small_flock,
)
from kestrelctl.simulate.flock_worlds.flocked_manager import FlockedManager
from kestrelctl.simulate.flock_worlds.guest_audit import GuestAudit, PoolAudit
from kestrelctl.simulate.flock_worlds.pool_faults import plan_faults
from kestrelctl.simulate.flock_worlds.streams import FlockServer
from kestrelctl.simulate.nodes import Nodes
from kestrelctl.simulate.simulated_machine import SimulatedMachine
from kestrelctl.simulate.simulation_clock import SimulationClock, StandsStill, fingerprint
from kestrelctl.simulate.store import SimulatedStore
from kestrelctl.simulate.truth import Fate, StageFate, fate
from kestrelctl.simulate.users import Owner
from kestrelctl.simulate.vigil import Vigil
from kestrelctl.simulate.workload import OWNERS
from kestrelctl.simulate.world import LOOK_SECONDS, STOPS_WITHIN_SECONDS, WorldReport, log_told

#: After the last task has ended, loans run out and pools that lost each other meet again within so
#: many minutes of the flock.
CALM_MINUTES = 45.0


class WorldOfPools:
    """All pools of a flock, and whatever happens to them."""

    def __init__(self, seed: int, settings: FlockWorldSettings) -> None:
        self.settings = settings
        self.clock = SimulationClock(keep_story=settings.keep_story)
        self.whole = GuestAudit()
        self._seed = seed
        self.pools: list[FlockedPool] = []
        streams = Random(f"{seed} streams")
        for plan in settings.pools:
            made = self._pool(plan)
            for other in self.pools:
                made.server.know(other.server, streams, settings.stream_seconds)
            self.pools.append(made)
        self.vigil = FlockVigil(self.pools, self.whole, settings.flock)
        for pool in self.pools:
            pool.manager.scheduled = partial(self.vigil.scheduled, pool.domain)
            self._begin(pool)
        random = Random(f"{seed} faults")
        plan_faults(self.clock, self.pools, random, settings.faults, settings.fault_seconds)

    def _pool(self, plan: PoolPlan) -> FlockedPool:
        clock, world, domain = self.clock, plan.world, plan.domain
        random = {
            part: Random(f"{self._seed} {domain} {part}")
            for part in ("network", "store", "manager", "workers", "users", "truth")
        }
        audit = PoolAudit(domain, clock, self.whole)
        server = FlockServer(clock, random["network"], world.latency_seconds, domain)
        store = SimulatedStore(clock, random["store"], world.commit_seconds, audit.committed)
        manager = FlockedManager(
            clock,
            random["manager"],
            server,
            store,
            audit,
            world.config,
            self.whole,
            self.settings.flock,
            plan.through,
            check=world.check,
        )
        operator = FlockOperator(clock, random["users"], server, audit)
        broken: set[str] = set()
        full: set[str] = set()
        workers = [
            SimulatedMachine(
                f"{domain}-w{which}",
                clock,
                random["workers"],
                server,
                audit,
                ad,
                partial(_fate, random["truth"], broken, full, f"{domain}-w{which}"),
                _no_stage,
                pulls=world.machines_per_puller > 0 and which % world.machines_per_puller == 0,
            )
            for which, ad in enumerate(world.ads)
        ]
        owners = [
            Owner(name, clock, random["users"], server, audit)
            for name in dict.fromkeys([OWNERS[0], *(job.owner for job in world.submissions)])
        ]
        nodes = Nodes(
            clock=clock,
            server=server,
            store=store,
            manager=manager,
            workers=workers,
            owners=owners,
            operator=operator,
            broken=broken,
            full=full,
        )
        vigil = Vigil(nodes, audit, world)
        manager.lease_ran_out = vigil.lease_ran_out
        audit.workers = lambda: manager.pool.state.workers if manager.pool is not None else {}
        return FlockedPool(
            plan=plan,
            server=server,
            manager=manager,
            operator=operator,
            nodes=nodes,
            audit=audit,
            vigil=vigil,
        )

    def _begin(self, pool: FlockedPool) -> None:
        """Its processes start, and its users and admins have their plans."""
        nodes, world = pool.nodes, pool.plan.world
        for process in (nodes.manager, *nodes.owners, nodes.operator):
            process.start()
        random = Random(f"{self._seed} {pool.domain} joining")
        for worker in nodes.workers:
            self.clock.after(random.uniform(0.0, world.join_seconds), worker.start)
        for owner in nodes.owners:
            owner.plan(job for job in world.submissions if job.owner == owner.name)
        pool.operator.plan_flock(pool.plan)

    # -- the course of the world -------------------------------------------------------------------

    def run(self) -> float:
        """Lets everything happen, then has peace; returns the seconds until all had ended."""
        try:
            return self._run()
        except StandsStill as error:
            self._expect(False, f"time stands still: {error}")
            return self.clock.now - self.clock.start

    def _run(self) -> float:
        clock, settings = self.clock, self.settings
        if settings.faults:
            self.watch_until(clock.start + settings.fault_seconds)
            self._peace()
        self._until_rest(settings.patience_seconds, self._unrest)
        seconds = clock.now - clock.start
        self._until_rest(CALM_MINUTES * settings.flock.minute_seconds + 60.0, self._apart)
        self._stop()
        for pool in self.pools:
            pool.audit.verdict(pool.nodes.store)
        return seconds

    def _until_rest(self, seconds: float, unrest: Callable[[], list[str]]) -> None:
        """Goes on until nothing is left; what is left after that time is a problem."""
        deadline = self.clock.now + seconds
        while self.clock.now < deadline and unrest():
            self.watch_until(self.clock.now + LOOK_SECONDS)
            for pool in self.pools:
                active = pool.nodes.store.jobs(states=["active"])
                for owner in pool.nodes.owners:
                    owner.release_held(active)
        for what in unrest():
            self._expect(False, f"the world does not come to rest: {what}")

    def _unrest(self) -> list[str]:
        return [f"{pool.domain}: {what}" for pool in self.pools for what in pool.unrest]

    def _apart(self) -> list[str]:
        """What is left of loans, and pools of the flock that do not know each other."""
        found = [f"{pool.domain}: {what}" for pool in self.pools for what in pool.loans_left]
        members = [pool for pool in self.pools if pool.plan.stays]
        for pool in self.pools:
            flock = pool.manager.flock
            if flock is None:
                continue
            if flock.member != pool.plan.stays:
                found.append(f"{pool.domain} is a member: {flock.member}")
            known = set(flock.overlay.known()) if flock.member else set()
            wanted = {other.domain for other in members if other is not pool}
            if flock.member and known != wanted:
                found.append(f"{pool.domain} knows {sorted(known)}, not {sorted(wanted)}")
        return found

    def _stop(self) -> None:
        """All managers are told to stop, and do."""
        lives = [(pool.manager, pool.manager.life) for pool in self.pools]
        for manager, _ in lives:
            manager.terminate()
        deadline = self.clock.now + STOPS_WITHIN_SECONDS
        while self.clock.now < deadline and any(m.alive and m.life == n for m, n in lives):
            self.clock.run_until(self.clock.now + LOOK_SECONDS / 10)
        for manager, life in lives:
            stopped = not manager.alive or manager.life != life
            manager.audit.expect(stopped, "the manager does not stop when it is told to")

    def _expect(self, condition: bool, text: str) -> None:
        self.pools[0].audit.expect(condition, text)

    def watch_until(self, moment: float) -> None:
        """Lets time pass, and looks at everything."""
        while self.clock.now < moment:
            self.clock.run_until(min(moment, self.clock.now + LOOK_SECONDS))
            for pool in self.pools:
                pool.vigil.look()
            self.vigil.look()

    def _peace(self) -> None:
        """Whatever was broken is mended."""
        self.clock.tell("world", "has peace")
        for pool in self.pools:
            nodes = pool.nodes
            nodes.broken.clear()
            nodes.full.clear()
            pool.server.start()
            for stream in pool.server.streams.values():
                stream.heal()
            nodes.store.slowness = 1.0
            nodes.store.full = False
            for process in (pool.manager, *nodes.workers):
                process.heal()
                process.go_on()
                process.start()
            for worker in nodes.workers:
                nodes.operator.resume(worker.address)

    def close(self) -> None:
        """Ends all processes."""
        for pool in self.pools:
            for process in pool.nodes.processes:
                process.kill()


def _fate(
    truth: Random, broken: set[str], full: set[str], worker: str, kind: str, index: int
) -> Fate:
    if worker in broken:
        return Fate(0.001, Outcome.FAILED)
    if worker in full:
        return Fate(0.001, Outcome.UNABLE)
    return fate(truth, kind, index)


def _no_stage(stage: Stage) -> StageFate:
    raise AssertionError("no task of this world has stages")


def run_flock(seed: int, settings: FlockWorldSettings | None = None) -> WorldReport:
    """Runs a world of several pools to its end.

    Args:
        seed: of everything that is left to chance; the same seed tells the same story.
        settings: the world; by default the small one of that seed.
    """
    world = WorldOfPools(seed, settings or small_flock(seed))
    try:
        with log_told(world.clock, world.pools[0].audit):
            seconds = world.run()
    except Exception as error:
        error.add_note(
            f"in the flock of seed {seed}, after:\n" + "\n".join(world.clock.lines()[-50:])
        )
        raise
    finally:
        world.close()
    counts = Counts()
    own = [
        job
        for pool in world.pools
        for job in pool.nodes.store.jobs(limit=1_000_000)
        if job.spec.guest is None
    ]
    for job in own:
        counts.done += job.counts.done
        counts.failed += job.counts.failed
        counts.lost += job.counts.lost
        counts.cancelled += job.counts.cancelled
    story = world.clock.lines()
    return WorldReport(
        seed=seed,
        problems=world.whole.problems,
        seconds=seconds,
        busy_seconds=max((job.ended_at or 0.0 for job in own), default=world.clock.start)
        - world.clock.start,
        jobs=len(own),
        counts=counts,
        executions=sum(len(pool.audit.executions) for pool in world.pools),
        wasted=0,
        actions=world.clock.actions,
        digest=fingerprint(story),
        story=story,
        guests=len(world.whole.guests),
    )
