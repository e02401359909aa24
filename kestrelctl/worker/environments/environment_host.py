"""Makes environments on this machine, as the pool orders them, and says what became of them.

What an environment has is taken off what this machine's own worker offers, from the order until it
has gone. Nothing of this is stored: what an earlier process has left is stopped before this one
begins, and the manager hears what there is after each welcome.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from kestrelctl.core.environments.environment_class import EnvironmentClass, EnvironmentResources
from kestrelctl.core.environments.host_share import host_share
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.core.environments.node_command import node_command
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import LEAST_OF_AN_ASSET, amounts, natural
from kestrelctl.errors import KestrelError
from kestrelctl.protocol.workers import (
    EndedEnvironment,
    EnvironmentsHere,
    HeldEnvironment,
    StartEnvironment,
    StopEnvironment,
)
from kestrelctl.worker.environments.environment_driver import EnvironmentDriver

log = logging.getLogger(__name__)

#: The pause between two looks whether environments are still there.
LOOK_SECONDS = 1.0
#: How much is told of what a program has said at its end.
SAID_CHARACTERS = 300
#: An environment that is not stopped after this time is stopped again, after a pause.
STOP_SECONDS = 60.0
STOP_AGAIN_SECONDS = 10.0


class HostSession(Protocol):
    """This machine's own worker."""

    @property
    def ad(self) -> WorkerAd:
        """The offer of this worker."""
        ...

    def free(self) -> Mapping[str, int]:
        """Returns the part of that offer that its tasks do not use."""
        ...

    def resize(self, ad: WorkerAd) -> None:
        """Has it offer more or less."""

    def say(self, message: EnvironmentsHere) -> None:
        """Tells the pool, if it is there."""


class SweepingDriver(EnvironmentDriver, Protocol):
    """A driver that is asked for all of a sweep at once."""

    async def sweep(self) -> list[str]:
        """Stops what an earlier process has left; returns the names."""
        ...


class _Here:
    """One environment.

    Attributes:
        assets: what it has, in natural units.
        held: the part of that which is taken off this machine's worker for it.
        prepared: what its driver has prepared for it; empty while it has not.
        work: what is being done with it.
        stops: whether the pool has asked for its end.
    """

    def __init__(self, order: StartEnvironment) -> None:
        self.order = order
        self.assets = dict(order.assets)
        self.held: dict[str, float] = {}
        self.prepared = ""
        self.starts = True
        self.stops = False
        self.work: asyncio.Task[None] | None = None


class EnvironmentHost:
    """The environments of one machine.

    Args:
        drivers: the drivers that work here, by kind.
        recipes: a directory for recipes.
        token_of: the token that a temporary account (address, password) makes, with what is known
            here of the server.
        command_of: the command line of the worker in an environment of a class, under a name.
        close_drivers: called when the last one is stopped.

    Attributes:
        drivers: the same.
    """

    def __init__(
        self,
        session: HostSession,
        drivers: Mapping[str, SweepingDriver],
        owner: EnvironmentOwner,
        recipes: Path,
        token_of: Callable[[str, str], str],
        command_of: Callable[[EnvironmentClass, str], tuple[str, ...]],
        close_drivers: Callable[[], None] = lambda: None,
    ) -> None:
        self._session = session
        self.drivers = drivers
        self._owner = owner
        self._recipes = recipes
        self._token_of = token_of
        self._command_of = command_of
        self._close_drivers = close_drivers
        self._here: dict[int, _Here] = {}
        self._looking: asyncio.Task[None] | None = None
        self._closing = False

    async def sweep(self) -> None:
        """Stops what an earlier process has left."""
        for kind, driver in self.drivers.items():
            for name in await driver.sweep():
                log.warning("stopped %s, a %s environment that was left behind", name, kind)

    def greet(self) -> None:
        """Says what there is: the pool has welcomed this machine's worker."""
        self._say([])

    def in_use(self) -> list[str]:
        """Lists what drivers have prepared for the environments that are here."""
        return [here.prepared for here in self._here.values() if here.prepared]

    # -- orders ------------------------------------------------------------------------------------

    def on_start(self, order: StartEnvironment) -> None:
        """Begins to start one, unless it is here or cannot be."""
        if order.number in self._here:
            self._say([])
            return
        problem = self._problem(order)
        if problem:
            log.warning("environment %d of class %s: %s", order.number, order.of, problem)
            self._say([_ended(order, problem)])
            return
        here = self._here[order.number] = _Here(order)
        self._take(here)
        self._say([])
        here.work = asyncio.get_running_loop().create_task(self._start(here))
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    def on_stop(self, order: StopEnvironment) -> None:
        """Stops one, or says that it is not here."""
        here = self._here.get(order.number)
        if here is None:
            gone = EndedEnvironment(order.number, "", "")
            self._say([gone])
        elif not here.stops:
            here.stops = True
            if here.work is not None:
                here.work.cancel()
            here.work = asyncio.get_running_loop().create_task(self._end(here, ""))

    async def close(self) -> None:
        """Stops all of them: this machine's worker ends."""
        self._closing = True
        if self._looking is not None:
            self._looking.cancel()
        for here in list(self._here.values()):
            self.on_stop(StopEnvironment(number=here.order.number))
        ends = [here.work for here in self._here.values() if here.work is not None]
        await asyncio.gather(*ends, return_exceptions=True)
        self._close_drivers()

    def _problem(self, order: StartEnvironment) -> str:
        """The reason why one cannot be started here; empty if it can."""
        if self._closing:
            return "this worker is ending"
        if order.kind not in self.drivers:
            return f"no environments of kind {order.kind} are made here"
        free = self._session.free()
        of_share = dict.fromkeys(host_share(self._session.ad.assets, order.assets), 1)
        for asset, amount in (of_share | amounts(order.assets)).items():
            if free.get(asset, 0) < amount:
                return f"there is no room for it any more: too little {asset} is free"
        return ""

    # -- one environment ---------------------------------------------------------------------------

    async def _start(self, here: _Here) -> None:
        order = here.order
        driver = self.drivers[order.kind]
        name = self._owner.name(order.number)
        try:
            async with asyncio.timeout(order.start_seconds):
                wanted = self._class_of(order, here.assets)
                here.prepared = await driver.prepare(wanted)
                if order.runs:  # it joins no pool of ours, so it is handed nothing to join with
                    command, token = node_command(order.runs, order.worker), ""
                else:
                    command = self._command_of(wanted, order.worker)
                    token = self._token_of(order.jid, order.password)
                await driver.start(name, wanted, here.prepared, command, token)
        except TimeoutError:
            await self._end(here, f"it was not started within {order.start_seconds:g} s")
        except KestrelError as error:
            cause = f": {error.cause}" if error.cause else ""
            await self._end(here, f"{error.message}{cause}")
        except OSError as error:
            await self._end(here, f"it cannot be started: {error}")
        else:
            log.info("started environment %d of class %s", order.number, order.of)
            here.starts = False
            self._say([])

    def _class_of(self, order: StartEnvironment, assets: Mapping[str, float]) -> EnvironmentClass:
        recipe = ""
        if order.recipe:
            # Alone in its directory: a container's build sees all of that. For a tree, a program.
            place = self._recipe_of(order)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(order.recipe)
            place.chmod(0o700)
            recipe = str(place)
        return EnvironmentClass(
            name=order.of,
            kind=order.kind,
            image=order.image,
            recipe=recipe,
            tags=tuple(order.tags),
            resources=EnvironmentResources(
                cpus=assets.get("cpus", 0.0),
                memory_bytes=int(assets.get("memory", 0.0)),
                disk_bytes=int(assets.get("disk", 0.0)),
            ),
        )

    def _recipe_of(self, order: StartEnvironment) -> Path:
        return self._recipes / f"{order.of}-{order.number}" / "recipe"

    async def _end(self, here: _Here, why: str) -> None:
        """Removes one, gives back what it had, and says so."""
        order = here.order
        if why:
            log.warning("environment %d of class %s: %s", order.number, order.of, why)
        while not await self._is_stopped(order) and not self._closing:
            await asyncio.sleep(STOP_AGAIN_SECONDS)  # Meanwhile it keeps what it has.
        shutil.rmtree(self._recipe_of(order).parent, ignore_errors=True)
        if self._here.pop(order.number, None) is not None:
            self._offer(here.held)
            self._say([_ended(order, why)])

    async def _is_stopped(self, order: StartEnvironment) -> bool:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.drivers[order.kind].stop(self._owner.name(order.number))
        except (TimeoutError, KestrelError, OSError) as error:
            log.warning("environment %d is not stopped: %s", order.number, error)
            return False
        return True

    async def _look(self) -> None:
        """Notices environments that end by themselves."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for kind in {here.order.kind for here in self._here.values()}:
                # What starts during the look is perhaps not in what the driver finds.
                looked_for = [
                    here
                    for here in self._here.values()
                    if here.order.kind == kind and not here.starts
                ]
                try:
                    found = await self.drivers[kind].status()
                except (KestrelError, OSError) as error:
                    log.warning("environments of kind %s cannot be looked at: %s", kind, error)
                    continue
                for here in looked_for:
                    if here.stops:
                        continue
                    status = found.get(self._owner.name(here.order.number))
                    if status is None or not status.running:
                        here.stops = True
                        said = status.said[-SAID_CHARACTERS:] if status is not None else ""
                        what = "program" if here.order.runs else "worker"
                        why = f"its {what} has ended{': ' + said if said else ''}"
                        here.work = asyncio.get_running_loop().create_task(self._end(here, why))

    # -- what this machine's worker offers ---------------------------------------------------------

    def _take(self, here: _Here) -> None:
        """Takes what an environment has off what this machine's worker offers."""
        ad, free = self._session.ad, natural(self._session.free())
        share = host_share(ad.assets, here.order.assets)
        for name, amount in share.items():
            here.assets[name] = min(amount, float(int(free.get(name, 0.0))))
        for name, amount in here.assets.items():
            least = LEAST_OF_AN_ASSET if name == "cpus" else 0.0  # nobody may offer none of these
            here.held[name] = min(amount, ad.assets.get(name, 0.0) - least)
        self._offer({name: -amount for name, amount in here.held.items()})

    def _offer(self, more: Mapping[str, float]) -> None:
        ad = self._session.ad
        assets = {name: round(n + more.get(name, 0.0), 6) for name, n in ad.assets.items()}
        self._session.resize(msgspec.structs.replace(ad, assets=assets))

    def _say(self, ended: list[EndedEnvironment]) -> None:
        self._session.say(
            EnvironmentsHere(
                kinds=sorted(self.drivers),
                here=[
                    HeldEnvironment(
                        here.order.number,
                        here.order.of,
                        here.order.asked_for,
                        here.starts,
                        bool(here.order.runs),
                    )
                    for here in self._here.values()
                ],
                ended=ended,
            )
        )


def _ended(order: StartEnvironment, why: str) -> EndedEnvironment:
    return EndedEnvironment(order.number, order.of, why[:1_000])
