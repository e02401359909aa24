"""The part of a session that is about environments on its machine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import workers
from kestrelctl.protocol.workers import EnvironmentsHere, StartEnvironment, StopEnvironment

log = logging.getLogger(__name__)


class Hosting(Protocol):
    """Makes environments: `worker.environments.environment_host.EnvironmentHost`."""

    def greet(self) -> None:
        """Says what there is: the pool has welcomed this machine's worker."""

    def on_start(self, order: StartEnvironment) -> None:
        """Begins to start one."""

    def on_stop(self, order: StopEnvironment) -> None:
        """Stops one."""


class OffersAssets(Protocol):
    """A worker's session."""

    ad: WorkerAd

    def resize(self, ad: WorkerAd) -> None:
        """Offers more or less from now on."""


class SessionEnvironments:
    """Stands between a session and what makes environments on its machine.

    Attributes:
        host: what makes them; None if none are made.
    """

    def __init__(
        self, session: OffersAssets, agent: Agent, send: Callable[[workers.Message], None]
    ) -> None:
        self._session = session
        self._agent = agent
        self._send = send
        self.host: Hosting | None = None

    # -- for the session ---------------------------------------------------------------------------

    def on_welcome(self) -> None:
        """Says what there is to the pool, which has welcomed this machine's worker."""
        if self.host is not None:
            self.host.greet()

    def on_start(self, order: StartEnvironment) -> None:
        """Starts one that the pool wants."""
        if self.host is not None:
            self.host.on_start(order)
        else:
            log.warning("ignored an order for an environment: none are made here")

    def on_stop(self, order: StopEnvironment) -> None:
        """Stops one for the pool."""
        if self.host is not None:
            self.host.on_stop(order)

    # -- for what makes them -----------------------------------------------------------------------

    @property
    def ad(self) -> WorkerAd:
        """The offer of this machine's worker."""
        return self._session.ad

    def free(self) -> Mapping[str, int]:
        """Returns the part of that offer that its tasks do not use."""
        return self._agent.free

    def resize(self, ad: WorkerAd) -> None:
        """Has it offer more or less."""
        self._session.resize(ad)

    def say(self, message: EnvironmentsHere) -> None:
        """Tells the pool, if it has welcomed the worker: otherwise it will be told then."""
        if self._agent.welcomed:
            self._send(message)
