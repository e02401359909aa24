"""The part of a session that tells the pool what was read of the host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.properties.changes import PropertyTable
from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.protocol import workers
from kestrelctl.protocol.properties import MOST_READINGS, PropertiesHere, ToldReading

#: What is read meanwhile is told together.
COLLECT_SECONDS = 1.0


class SessionProperties:
    """Tells everything after each welcome, and then what changes."""

    def __init__(self, agent: Agent, send: Callable[[workers.Message], None]) -> None:
        self._agent = agent
        self._send = send
        self._table = PropertyTable()
        self._timer: asyncio.TimerHandle | None = None

    def put(self, name: str, reading: PropertyReading) -> None:
        """A property was read."""
        self._table.put(name, reading)
        if self._timer is None and self._agent.welcomed and self._table.has_changes:
            self._timer = asyncio.get_running_loop().call_later(COLLECT_SECONDS, self._tell)

    def on_welcome(self) -> None:
        """The pool has welcomed this worker: it knows nothing of its host, or what is old."""
        told = self._table.tell_all()
        if told:
            self._say(told, anew=True)

    def stop(self) -> None:
        """The connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        self._timer = None
        if self._agent.welcomed:
            self._say(self._table.tell_changes(), anew=False)

    def _say(self, told: dict[str, PropertyReading], *, anew: bool) -> None:
        readings = [
            ToldReading(name, each.at, each.value, each.missing) for name, each in told.items()
        ]
        for first in range(0, len(readings), MOST_READINGS):
            part = readings[first : first + MOST_READINGS]
            self._send(PropertiesHere(readings=part, anew=anew and not first))
