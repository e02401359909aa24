"""Who and what there is in a simulated pool."""

from __future__ import annotations

from dataclasses import dataclass, field

from kestrelctl.simulate.network import Server
from kestrelctl.simulate.simulated_machine import SimulatedMachine
from kestrelctl.simulate.simulated_manager import SimulatedManager
from kestrelctl.simulate.simulated_process import SimulatedProcess
from kestrelctl.simulate.simulation_clock import SimulationClock
from kestrelctl.simulate.store import SimulatedStore
from kestrelctl.simulate.users import Operator, Owner


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
        """All that run."""
        return [self.manager, *self.workers, *self.owners, self.operator]
