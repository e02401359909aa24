"""The nodes of a simulated pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from kestrel_worlds.network import Server
from kestrel_worlds.simulated_machine import SimulatedMachine
from kestrel_worlds.simulated_manager import SimulatedManager
from kestrel_worlds.simulated_process import SimulatedProcess
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrel_worlds.users import Operator, Owner


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """All nodes of one pool."""

    clock: SimulationClock
    server: Server
    store: SimulatedStore
    manager: SimulatedManager
    workers: list[SimulatedMachine]
    owners: list[Owner]
    operator: Operator
    broken: set[str] = field(default_factory=set)  #: workers that fail everything just now
    hollow: set[str] = field(default_factory=set)  #: workers that run nothing and report success
    full: set[str] = field(default_factory=set)  #: workers that can start nothing just now

    @property
    def processes(self) -> list[SimulatedProcess]:
        """All processes of the pool."""
        return [self.manager, *self.workers, *self.owners, self.operator]

    @property
    def unrest(self) -> list[str]:
        """Jobs that have not ended, nodes that do not know it yet, users who may ask for more."""
        pool = self.manager.pool
        if pool is None:
            return ["has no manager"]
        found = [f"job {job.id} is active" for job in pool.jobs]
        found += [f"job {job_id} is ending" for job_id in pool.state.ending]
        found += [f"{owner.name} is not settled" for owner in self.owners if not owner.settled]
        found += [f"{what} is not answered" for what in self.operator.open]
        found += [f"{each.name} is not settled" for each in self.workers if not each.settled]
        return found

    def mend(self) -> None:
        """Mends whatever was broken."""
        self.broken.clear()
        self.full.clear()
        self.hollow.clear()
        self.server.start()
        self.store.slowness = 1.0
        self.store.full = False
        for process in (self.manager, *self.workers):
            process.heal()
            process.go_on()
            process.start()
        for worker in self.workers:
            worker.repeats_reports = False
            self.operator.resume(worker.address)
