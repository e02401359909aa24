"""The production manager with the service that starts environments, on simulated time."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from kestrel_worlds.audit import Audit
from kestrel_worlds.network import Server
from kestrel_worlds.simulated_manager import SimulatedManager
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.store import SimulatedStore
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.started import Environment
from kestrelctl.core.model.config import Config
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.listener import ManagerListener
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.service import Service


class HostingManager(SimulatedManager):
    """The manager of a pool that has classes of environments."""

    def __init__(
        self,
        clock: SimulationClock,
        random: Random,
        server: Server,
        store: SimulatedStore,
        audit: Audit,
        config: Config,
        classes: Iterable[EnvironmentClass],
        *,
        check: bool,
    ) -> None:
        super().__init__(clock, random, server, store, audit, config, check=check)
        self._classes = {each.name: each for each in classes}
        self._desk: EnvironmentService | None = None
        self._accounts = KeptAccounts()

    def open_environments(
        self, service: Service, dispatcher: RequestDispatcher, listener: ManagerListener
    ) -> None:
        """Opens the service for environments, as `manager.daemon.serve` does."""
        workers_domain = f"workers.{self.server.domain}"
        invitations = AnybodyJoins(workers_domain)
        self._desk = EnvironmentService(
            service, self._classes, {}, invitations, workers_domain, self._accounts
        )
        dispatcher.serve_environments(self._desk)
        listener.on_environments = self._desk.on_here

    def on_ended(self) -> None:
        super().on_ended()
        self._desk = None

    def environments(self) -> list[Environment]:
        """Lists the environments that the living process knows of."""
        return list(self._desk.book.known.values()) if self._desk is not None else []


class KeptAccounts:
    """The `AccountList` of all processes of a manager, on a disk that outlives them."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def add(self, name: str) -> None:
        self.names.add(name)

    def discard(self, name: str) -> None:
        self.names.discard(name)


class AnybodyJoins:
    """Accounts in a world where workers need no password (`environments.service.Invitations`)."""

    def __init__(self, workers_domain: str) -> None:
        self._workers_domain = workers_domain

    async def invite(self, name: str, valid_seconds: float) -> tuple[str, str, int]:
        return f"{name}@{self._workers_domain}", "", 0

    async def take_away(self, jid: str, by: str) -> None:
        pass
