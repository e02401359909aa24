"""The XMPP server and the connections to it, as far as their failures matter.

A connection delivers in order or not at all. What is in flight when either end dies may be lost;
what is in flight while it is cut arrives when it heals, if the connection still exists then.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kestrelctl.simulate.clock import Clock

Receiver = Callable[[Any], None]

#: What the server tells the pool of a worker whose connection ended.
UNAVAILABLE = "unavailable"
#: What the server answers to a message for somebody who is not there.
BOUNCED = "bounced"

_END = object()


class Pipe:
    """One direction of a connection."""

    def __init__(
        self,
        clock: Clock,
        latency: Callable[[], float],
        deliver: Receiver,
        ended: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._latency = latency
        self._deliver = deliver
        self._ended = ended
        self._last = 0.0
        self._generation = 0
        self._closed = False  #: nothing more goes in
        self._deaf = False  #: nothing more comes out
        self._held: list[Any] | None = None

    def send(self, message: Any) -> None:
        """Puts a message in, to arrive after all that went before."""
        if not self._closed:
            self._carry(message)

    def _carry(self, message: Any) -> None:
        self._last = max(self._last, self._clock.now + self._latency())
        self._clock.at(self._last, self._arrive, self._generation, message)

    def _arrive(self, generation: int, message: Any) -> None:
        if self._deaf or generation != self._generation:
            return
        if self._held is not None:
            self._held.append(message)
        elif message is _END:
            self._deaf = True
            self._ended()
        else:
            self._deliver(message)

    def close(self, *, lossy: bool) -> None:
        """The sending end goes away; the other learns of it, after what is in flight or instead."""
        if self._closed:
            return
        self._closed = True
        if lossy:
            self._generation += 1
            if self._held is not None:
                self._held.clear()
        self._carry(_END)

    def abandon(self) -> None:
        """The receiving end goes away."""
        self._deaf = True

    def cut(self) -> None:
        """Nothing arrives until it heals."""
        if self._held is None:
            self._held = []

    def heal(self) -> None:
        """What was held up arrives now."""
        held, self._held = self._held or [], None
        for message in held:
            self._arrive(self._generation, message)


class Link:
    """A connection of a node to the server.

    Args:
        deliver: called with each message that arrives at the node.
        ended: called when the node learns that the server's end is gone.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        deliver: Callable[[Link, Any], None],
        ended: Callable[[Link], None],
    ) -> None:
        self.name = name
        latency = server.latency_of_one()
        self._up = Pipe(
            server.clock,
            latency,
            lambda message: server.on_message(self, message),
            lambda: server.on_ended(self),
        )
        self._down = Pipe(
            server.clock, latency, lambda message: deliver(self, message), lambda: ended(self)
        )

    def send(self, message: Any) -> None:
        """From the node to the server."""
        self._up.send(message)

    def push(self, message: Any) -> None:
        """From the server to the node."""
        self._down.send(message)

    def close(self, *, lossy: bool) -> None:
        """The node's end goes away."""
        self._down.abandon()
        self._up.close(lossy=lossy)

    def close_at_server(self, *, lossy: bool) -> None:
        """The server's end goes away."""
        self._up.abandon()
        self._down.close(lossy=lossy)

    def cut(self) -> None:
        """Neither direction carries anything."""
        self._up.cut()
        self._down.cut()

    def heal(self) -> None:
        """Both directions carry again."""
        self._up.heal()
        self._down.heal()


class Server:
    """Routes between one manager and its workers; says who became unavailable.

    Args:
        latency_seconds: bounds of a connection's typical one-way delay.
    """

    MANAGER = "manager"

    def __init__(self, clock: Clock, random: Random, latency_seconds: tuple[float, float]) -> None:
        self.clock = clock
        self.up = True
        self._random = random
        self._latency_seconds = latency_seconds
        self._links: dict[str, Link] = {}

    def latency_of_one(self) -> Callable[[], float]:
        """A connection's delays: around a typical one of its own."""
        typical = self._random.uniform(*self._latency_seconds)
        draw = self._random.random
        return lambda: typical * (0.5 + draw())

    def connect(
        self,
        name: str,
        deliver: Callable[[Link, Any], None],
        ended: Callable[[Link], None],
    ) -> Link | None:
        """A new connection, in place of an older one of that name; None if the server is down."""
        if not self.up:
            return None
        older = self._links.get(name)
        if older is not None:
            self._drop(older, lossy=False)
        link = self._links[name] = Link(self, name, deliver, ended)
        return link

    def on_message(self, link: Link, message: Any) -> None:
        """Passes a worker's message to the manager, a manager's (addressee, message) to him."""
        if self._links.get(link.name) is not link:
            return
        if link.name == self.MANAGER:
            addressee, message = message
            other = self._links.get(addressee)
            if other is not None:
                other.push(message)
            else:
                link.push((addressee, BOUNCED))
        elif self.MANAGER in self._links:
            self._to_manager(link.name, message)
        else:
            link.push(BOUNCED)

    def on_ended(self, link: Link) -> None:
        """A node's end of a connection is gone."""
        if self._links.get(link.name) is link:
            self._drop(link, lossy=True)

    def drop(self, name: str, *, lossy: bool) -> None:
        """Closes the connection of that name from here, as after unanswered keepalives."""
        link = self._links.get(name)
        if link is not None:
            self._drop(link, lossy=lossy)

    def _drop(self, link: Link, *, lossy: bool) -> None:
        del self._links[link.name]
        link.close_at_server(lossy=lossy)
        if link.name != self.MANAGER:
            self._to_manager(link.name, UNAVAILABLE)

    def _to_manager(self, name: str, message: Any) -> None:
        manager = self._links.get(self.MANAGER)
        if manager is not None:
            manager.push((name, message))

    def stop(self) -> None:
        """The server dies with all connections; nobody is told anything but that."""
        self.up = False
        links, self._links = self._links, {}
        for link in links.values():
            link.close_at_server(lossy=True)

    def start(self) -> None:
        """It takes connections again."""
        self.up = True
