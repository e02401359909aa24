"""A pool whose hosts are shared out among classes of work, on simulated time.

Core, manager and workers are those of production, and so is the code that decides which
environments to start, and that starts and stops them on their hosts.
"""

from __future__ import annotations

import msgspec

from kestrel_experiments.imbalance.class_load import ClassTask, tag_of
from kestrel_experiments.imbalance.environment_watch import EnvironmentWatch
from kestrel_experiments.imbalance.hosting_machine import HostingMachine
from kestrel_experiments.imbalance.hosting_manager import HostingManager
from kestrel_worlds.audit import Audit
from kestrel_worlds.course import Course, PoolOfWorld, log_told
from kestrel_worlds.network import Server
from kestrel_worlds.nodes import Nodes
from kestrel_worlds.set_up import Chance, begin
from kestrel_worlds.settings import WorldSettings
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrel_worlds.truth import Fate, StageFate
from kestrel_worlds.users import Operator, Owner
from kestrel_worlds.vigil import Vigil
from kestrel_worlds.workload import OWNERS, Submission
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.started import Environment
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import WorkerAd

#: Time from the beginning of the world to the moment 0 of the load, when the environments that
#: always stay are there.
BEFORE_SECONDS = 30.0
#: Time between two looks at the environments that there are.
LOOK_SECONDS = 0.05


class ImbalanceWorldPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A world.

    Attributes:
        hosts: number of machines, each of `host_cpus` processors.
        tasks: the load; tasks of an empty class run on the hosts themselves.
        start_seconds: limits of the time that an environment takes until its worker connects.
        check: verify the pool's invariants after every event; it takes most of the time.
        keep_story: remember what happened.
    """

    hosts: int
    classes: list[EnvironmentClass]
    tasks: list[ClassTask]
    host_cpus: float = 1.0
    start_seconds: tuple[float, float] = (0.3, 0.6)
    check: bool = False
    keep_story: bool = False


class ImbalanceWorld(Course):
    """The pool, and whatever happens to it.

    Attributes:
        nodes: its manager, its machines, and its users.
        store: what has become durable.
        hosts: the machines on which environments are made.
        watch: the environments that there have been.
        began_at: the moment 0 of the load, in seconds since the epoch.
    """

    def __init__(self, seed: int, plan: ImbalanceWorldPlan) -> None:
        clock = SimulationClock(keep_story=plan.keep_story)
        chance = Chance(str(seed))
        self.plan = plan
        self.audit = audit = Audit(clock)
        self.watch = EnvironmentWatch()
        self.began_at = clock.now + BEFORE_SECONDS
        ad = WorkerAd(assets={"cpus": plan.host_cpus})
        settings = WorldSettings(
            ads=[ad] * plan.hosts,
            submissions=[
                Submission(at_seconds=BEFORE_SECONDS + task.at, spec=_spec(number, task))
                for number, task in enumerate(plan.tasks)
            ],
            patience_seconds=_patience_seconds(plan),
            config=Config(),
            check=plan.check,
            keep_story=plan.keep_story,
        )
        server = Server(clock, chance.network, settings.latency_seconds)
        self.store = SimulatedStore(clock, chance.store, settings.commit_seconds, audit.committed)
        self._manager = manager = HostingManager(
            clock, chance.manager, server, self.store, audit, settings.config, plan.classes,
            check=plan.check,
        )  # fmt: skip
        self.nodes = nodes = Nodes(
            clock=clock,
            server=server,
            store=self.store,
            manager=manager,
            workers=[],
            owners=[Owner(OWNERS[0], clock, chance.users, server, audit)],
            operator=Operator(clock, chance.users, server, audit),
        )
        self.hosts = [
            HostingMachine(
                f"w{number}", clock, chance.workers, server, audit, ad, self._fate, _no_stages,
                nodes.workers, plan.start_seconds,
            )
            for number in range(plan.hosts)
        ]  # fmt: skip
        nodes.workers.extend(self.hosts)
        self.vigil = Vigil(nodes, audit, settings)
        super().__init__(clock, settings, [PoolOfWorld(nodes=nodes, audit=audit, vigil=self.vigil)])
        manager.lease_ran_out = self.vigil.lease_ran_out
        begin(nodes, settings, chance.workers)
        clock.after(BEFORE_SECONDS, self._the_load_begins)
        self._look_at_environments()

    def run_to_the_end(self) -> None:
        """Lets everything happen, and ends all processes."""
        try:
            with log_told(self.clock, self.audit):
                self.run()
        finally:
            self.close()

    def environments(self) -> list[Environment]:
        """Lists the environments that the manager knows of now."""
        return self._manager.environments()

    def _fate(self, key: str, index: int) -> Fate:
        return Fate(self.plan.tasks[int(key)].seconds, Outcome.DONE)

    def _look_at_environments(self) -> None:
        self.watch.look(self._manager.environments(), self.clock.now)
        self.clock.after(LOOK_SECONDS, self._look_at_environments)

    def _the_load_begins(self) -> None:
        least = sum(each.minimum for each in self.plan.classes)
        there = self.watch.ready()
        self.audit.expect(there == least, f"{there} environments are there, not {least}")


def _patience_seconds(plan: ImbalanceWorldPlan) -> float:
    """Returns more time than even one host would take for all of it."""
    work = sum(task.seconds for task in plan.tasks)
    return BEFORE_SECONDS + max((task.at for task in plan.tasks), default=0.0) + work + 600.0


def _spec(number: int, task: ClassTask) -> JobSpec:
    requires = (tag_of(task.of).upper(),) if task.of else ()
    return JobSpec(name=str(number), program=Program(argv=("task",)), requires=requires)


def _no_stages(stage: Stage) -> StageFate:
    raise AssertionError("no task of this world has stages")
