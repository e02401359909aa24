"""A node's session with the simulated server: a `kestrelctl.clock_and_session.Session`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from kestrel_worlds.loop import Loop
from kestrel_worlds.network import Link, Server, Stanza
from kestrelctl.clock_and_session import Listener


class SimulatedSession:
    """A connection that reconnects by itself, with jittered pauses, until it is stopped.

    Args:
        listener: hears what arrives, in turns of the loop.
        said: called with each payload that is sent and its addressee, before anybody else sees it.
        lost: called when this side learns that its connection is gone.
        repeats: tells whether a payload is sent twice.
        pause_seconds: returns the pause before the next try to connect, by failures in a row and by
            chance.

    Attributes:
        wire: the connection, if this side believes that there is one.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        listener: Listener,
        loop: Loop,
        random: Random,
        said: Callable[[str, str], None],
        lost: Callable[[], None],
        *,
        repeats: Callable[[str], bool],
        pause_seconds: Callable[[int, float], float],
    ) -> None:
        self.online = False
        self.refused: str | None = None
        self.link = "connecting"
        self.wire: Link | None = None
        self._server = server
        self._name = name
        self._listener = listener
        self._loop = loop
        self._random = random
        self._said = said
        self._tell_lost = lost
        self._repeats = repeats
        self._pause_seconds = pause_seconds
        self._failures = 0
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        self._timer = None
        self._loop.call_soon(self._connect)

    async def stop(self) -> None:
        self._stopping = True
        self.online = False
        if self._timer is not None:
            self._timer.cancel()
        self.vanish(lossy=False)

    def backlog_bytes(self) -> int:
        return 0  # the network takes all at once

    def certificate(self) -> tuple[str, float] | None:
        return None

    def _connect(self) -> None:
        if self._stopping or self.online:
            return
        wire = self._server.connect(self._name, self._arrives, self._ends)
        if wire is None:
            self._lost("nobody is there")
            return
        self.wire = wire
        self._failures = 0
        self.online = True
        self.link = "connected"
        self._listener.on_online()

    def _lost(self, why: str) -> None:
        was_online, self.online = self.online, False
        self.wire = None
        if was_online:
            self._tell_lost()
        if self._stopping or self._timer is not None:
            return
        self._failures += 1
        self.link = f"the server is away: {why}"
        pause = self._pause_seconds(self._failures, self._random.random())
        self._timer = self._loop.call_later(pause, self.start)
        if was_online or self._failures == 1:
            self._listener.on_offline(why)

    def vanish(self, *, lossy: bool) -> None:
        """Closes this end of the connection."""
        if self.wire is not None:
            self.wire.close(lossy=lossy)
            self.wire = None

    def break_off(self) -> None:
        """Breaks the connection, with what is in flight; this side is the first to know."""
        wire = self.wire
        if wire is not None:
            wire.close(lossy=True)
            self._ends(wire)

    # -- out ---------------------------------------------------------------------------------------

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        if self.wire is None:
            return
        self._said(payload, to)
        stanza = Stanza("on_payload", sender or self._name, to, payload)
        self.wire.send(stanza)
        if self._repeats(payload):
            self.wire.send(stanza)

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        raise AssertionError("nobody types in this world")

    def when_taken(self, done: Callable[[], None]) -> None:
        raise AssertionError("nobody is told of anything in this world")

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        if self.wire is not None:
            self.wire.send(Stanza("on_presence", sender or self._name, to, kind or "available"))

    # -- in ----------------------------------------------------------------------------------------

    def _arrives(self, wire: Link, stanza: Stanza) -> None:
        self._loop.call_soon(self._receive, wire, stanza)

    def _receive(self, wire: Link, stanza: Stanza) -> None:
        if wire is not self.wire:
            return
        listener = self._listener
        if stanza.sort == "on_payload":
            listener.on_payload(stanza.sender, stanza.to, stanza.text)
        elif stanza.sort == "on_presence":
            listener.on_presence(stanza.sender, stanza.to, stanza.text)
        else:
            listener.on_bounce(stanza.sender, stanza.text)

    def _ends(self, wire: Link) -> None:
        self._loop.call_soon(self._closed, wire)

    def _closed(self, wire: Link) -> None:
        if wire is self.wire:
            self._lost("connection closed")
