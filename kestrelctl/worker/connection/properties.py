"""The part of a session that tells the pool what was read of the host."""

from __future__ import annotations

from collections.abc import Callable

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.properties.changes import PropertyTable
from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.protocol import workers
from kestrelctl.protocol.properties import MOST_READINGS, PropertiesHere, ToldReading
from kestrelctl.timer import Timer

#: What is read within this time is told together.
COLLECT_SECONDS = 1.0


class SessionProperties:
    """Tells everything after each welcome, and then what changes."""

    def __init__(self, agent: Agent, send: Callable[[workers.Message], None]) -> None:
        self._agent = agent
        self._send = send
        self._table = PropertyTable()
        self._timer = Timer(self._tell)

    def put(self, name: str, reading: PropertyReading) -> None:
        """Takes what was read of a property."""
        self._table.put(name, reading)
        if self._agent.welcomed and self._table.has_changes:
            self._timer.set_once(COLLECT_SECONDS)

    def on_welcome(self) -> None:
        """Tells all to the pool, which knows nothing of this host, or only what is old."""
        told = self._table.tell_all()
        if told:
            self._say(told, anew=True)

    def stop(self) -> None:
        """Tells nothing more: the connection is lost."""
        self._timer.stop()

    def _tell(self) -> None:
        if self._agent.welcomed:
            self._say(self._table.tell_changes(), anew=False)

    def _say(self, told: dict[str, PropertyReading], *, anew: bool) -> None:
        readings = [
            ToldReading(name, each.at, each.value, each.missing) for name, each in told.items()
        ]
        for first in range(0, len(readings), MOST_READINGS):
            part = readings[first : first + MOST_READINGS]
            self._send(PropertiesHere(readings=part, anew=anew and not first))
