"""A machine whose worker makes environments; they are ordered by the code of production."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from random import Random

from kestrel_worlds.audit import Audit
from kestrel_worlds.network import Server
from kestrel_worlds.simulated_machine import SimulatedMachine
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.truth import Fate, StageFate
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts, amounts
from kestrelctl.protocol.workers import EnvironmentsHere
from kestrelctl.worker.connection.environments import SessionEnvironments
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus, sweep
from kestrelctl.worker.environments.environment_host import EnvironmentHost, HostSession

#: The only kind that is made here.
KIND = "venv"
#: How long an environment takes to go when its worker has ended, in seconds.
GOES_SECONDS = (0.02, 0.2)
_LOOK_SECONDS = 0.02
#: No class of this world has a recipe, so nothing is ever written there.
_RECIPES = Path("/nonexistent")


class HostingMachine(SimulatedMachine):
    """A machine with environments; each has a worker, which is a machine of its own.

    Args:
        workers: all machines of the pool, to which those of environments are added while they run.
        start_seconds: limits of the time that an environment takes until its worker connects.
    """

    def __init__(
        self,
        name: str,
        clock: SimulationClock,
        random: Random,
        server: Server,
        audit: Audit,
        ad: WorkerAd,
        fate: Callable[[str, int], Fate],
        stage_fate: Callable[[Stage], StageFate],
        workers: list[SimulatedMachine],
        start_seconds: tuple[float, float],
    ) -> None:
        def own_fate(kind: str, index: int) -> Fate:
            self._expect_room()
            return fate(kind, index)

        super().__init__(name, clock, random, server, audit, ad, own_fate, stage_fate, pulls=False)
        self._truth = (fate, stage_fate)
        self._workers = workers
        self._start_seconds = start_seconds
        self._whole = amounts(ad.assets)
        self._host: EnvironmentHost | None = None
        self._here: dict[str, Booted] = {}

    async def open_environments(self, session: SessionEnvironments) -> None:
        """Opens environments as in `worker.daemon.serve`; sweeps what a killed process left."""
        self._host = EnvironmentHost(
            AuditedHost(session, self.audit, self.address),
            {KIND: SimulatedDriver(self, self._here)},
            EnvironmentOwner(self.server.domain, self.name),
            _RECIPES,
            lambda jid, password: "",
            lambda wanted, worker: (worker,),
        )
        await self._host.sweep()
        session.host = self._host

    async def close_environments(self) -> None:
        if self._host is not None:
            await self._host.close()

    def lose_power(self) -> None:
        """Ends all that runs here, without a word."""
        self.kill()
        for booted in self._here.values():
            booted.wanted = False
            booted.kill()
        self._here.clear()

    def cut(self) -> None:
        """Cuts the machine off, and what runs in environments with it."""
        super().cut()
        for booted in self._here.values():
            booted.cut()

    def heal(self) -> None:
        super().heal()
        for booted in self._here.values():
            booted.heal()

    def boot(self, name: str, worker: str, wanted: EnvironmentClass) -> None:
        """Starts an environment's worker, which connects some time later."""
        ad = WorkerAd(
            assets={"cpus": wanted.resources.cpus}, tags=tuple(tag.upper() for tag in wanted.tags)
        )
        booted = self._here[name] = Booted(
            worker, self.clock, self.random, self.server, self.audit, ad, *self._truth, pulls=False
        )
        booted.workers = self._workers
        self._expect_room()
        self.clock.after(self.random.uniform(*self._start_seconds), booted.begin)

    def _expect_room(self) -> None:
        """Expects that the machine has what environments have and tasks of its own worker use."""
        for asset, whole in self._whole.items():
            tasks = self.audit.in_use(self.address, asset)
            taken = tasks + sum(each.offers.get(asset, 0) for each in self._here.values())
            text = f"environments and tasks have {taken} {asset} of {self.name}, it has {whole}"
            self.audit.expect(taken <= whole, text)

    async def goes(self) -> None:
        """Waits while what is left of an environment is removed."""
        await asyncio.sleep(self.random.uniform(*GOES_SECONDS))


class Booted(SimulatedMachine):
    """The worker of an environment.

    Attributes:
        workers: all machines of the pool; this one is among them while it runs.
        wanted: False once it is to end.
    """

    workers: list[SimulatedMachine]
    wanted = True

    @property
    def offers(self) -> Amounts:
        """The assets that it has."""
        return amounts(self._ad.assets)

    def begin(self) -> None:
        """Starts its program, unless it is not wanted any more."""
        if self.wanted:
            self.workers.append(self)
            self.start()

    def on_ended(self) -> None:
        super().on_ended()
        self.workers.remove(self)

    def end(self) -> None:
        """Asks it to end, as by SIGTERM."""
        self.wanted = False
        self.terminate()


class SimulatedDriver:
    """An `EnvironmentDriver` without processes."""

    def __init__(self, machine: HostingMachine, here: dict[str, Booted]) -> None:
        self._machine = machine
        self._here = here

    async def prepare(self, wanted: EnvironmentClass) -> str:
        return ""

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        self._machine.boot(name, command[0], wanted)

    async def collect(self, in_use: Collection[str]) -> list[str]:
        return []

    async def status(self) -> dict[str, EnvironmentStatus]:
        return {
            name: EnvironmentStatus(each.alive or each.life == 0)
            for name, each in self._here.items()
        }

    async def stop(self, name: str) -> None:
        booted = self._here.get(name)
        if booted is None:
            return
        booted.end()
        while booted.alive:
            await asyncio.sleep(_LOOK_SECONDS)
        await self._machine.goes()
        del self._here[name]

    async def sweep(self) -> list[str]:
        return await sweep(self)


class AuditedHost:
    """The worker of a machine: what it offers is what its tasks may use from then on."""

    def __init__(self, session: HostSession, audit: Audit, address: str) -> None:
        self._session = session
        self._audit = audit
        self._address = address

    @property
    def ad(self) -> WorkerAd:
        return self._session.ad

    def free(self) -> Mapping[str, int]:
        return self._session.free()

    def resize(self, ad: WorkerAd) -> None:
        self._audit.resized(self._address, amounts(ad.assets))
        self._session.resize(ad)

    def say(self, message: EnvironmentsHere) -> None:
        self._session.say(message)
