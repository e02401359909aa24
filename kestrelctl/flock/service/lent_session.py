"""The connection of a loan: a worker's session that uses the one of its manager."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kestrelctl.clock_and_session import Listener, Session


class LentSession:
    """A `Session` of one address of the manager's domain.

    Args:
        address: the address as which it speaks.
        connection: the manager's own.
        listener: the worker's.
    """

    def __init__(self, address: str, connection: Session, listener: Listener) -> None:
        self._address = address
        self._connection = connection
        self._listener = listener
        self._stopped = False
        self._reached: set[str] = set()
        self.online = False
        self.refused: str | None = None
        self.link = connection.link

    def start(self) -> None:
        """Goes online as soon as the manager's session is."""
        asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        if self._connection.online:
            self.on_online()

    async def stop(self) -> None:
        """Says that nobody is here any more."""
        if self._stopped:
            return
        self._stopped = True
        if self.online and self._connection.online:
            for to in self._reached:
                self._connection.send_presence(to, "unavailable", self._address)
        self.online = False

    def on_online(self) -> None:
        """Notes that the manager has a connection."""
        if not self.online and not self._stopped:
            self.online = True
            self._listener.on_online()

    def on_offline(self, why: str) -> None:
        """Notes that the manager has no connection."""
        if self.online:
            self.online = False
            self._listener.on_offline(why)

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        """Sends a JSON payload."""
        if self.online:
            self._connection.send(payload, to, self._address)

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Sends a chat message."""
        if self.online:
            self._connection.send_body(text, to, self._address)

    def when_taken(self, done: Callable[[], None]) -> None:
        """Calls `done` when the server has dealt with all that was sent so far."""
        self._connection.when_taken(done)

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        """Sends directed presence."""
        if self.online:
            self._reached.add(to)
            self._connection.send_presence(to, kind, self._address, show, status)

    def backlog_bytes(self) -> int:
        """The bytes that were given to the connection and are not written yet."""
        return self._connection.backlog_bytes()

    def certificate(self) -> tuple[str, float] | None:
        """The host and the end of the certificate of the manager's connection."""
        return self._connection.certificate()
