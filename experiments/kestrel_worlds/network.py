"""The XMPP server and the connections to it, as far as their failures matter.

A connection delivers in order or not at all. What is in flight when either end dies may be lost;
what is in flight while it is cut arrives when it heals, if the connection still exists then.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from kestrel_worlds.simulation_clock import SimulationClock

#: The domain of the only pool of a world: of its component, its workers and its users.
DOMAIN = "pool"
#: The condition of a bounced message whose receiver has no session.
GONE = "service-unavailable"


class Stanza(NamedTuple):
    """Something that travels: a payload, a bounce (with its condition) or presence (its type)."""

    sort: str  #: the name of the method of `Listener` that takes it
    sender: str
    to: str
    text: str


_END = Stanza("end", "", "", "")


class Pipe:
    """One direction of a connection."""

    def __init__(
        self,
        clock: SimulationClock,
        latency: Callable[[], float],
        deliver: Callable[[Stanza], None],
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
        self._held: list[Stanza] | None = None

    def send(self, stanza: Stanza) -> None:
        """Puts a stanza in, to arrive after all that went before."""
        if not self._closed:
            self._carry(stanza)

    def _carry(self, stanza: Stanza) -> None:
        clock = self._clock
        moment = clock.now + self._latency()
        if moment > self._last:
            self._last = moment
        clock.at(self._last, self._arrive, self._generation, stanza)

    def _arrive(self, generation: int, stanza: Stanza) -> None:
        if self._deaf or generation != self._generation:
            return
        if self._held is not None:
            self._held.append(stanza)
        elif stanza is _END:
            self._deaf = True
            self._ended()
        else:
            self._deliver(stanza)

    def close(self, *, lossy: bool) -> None:
        """Closes the sending end; the other learns of it, after what is in flight or instead."""
        if self._closed:
            return
        self._closed = True
        if lossy:
            self._generation += 1
            if self._held is not None:
                self._held.clear()
        self._carry(_END)

    def abandon(self) -> None:
        """Closes the receiving end."""
        self._deaf = True

    def cut(self) -> None:
        """Holds up everything until it heals."""
        if self._held is None:
            self._held = []

    def heal(self) -> None:
        """Lets what was held up arrive now."""
        held, self._held = self._held or [], None
        for stanza in held:
            self._arrive(self._generation, stanza)


class Link:
    """A connection of a node to the server.

    Args:
        deliver: called with each stanza that arrives at the node.
        ended: called when the node learns that the server's end is gone.
    """

    def __init__(
        self,
        server: Server,
        name: str,
        deliver: Callable[[Link, Stanza], None],
        ended: Callable[[Link], None],
    ) -> None:
        self.name = name
        self.greeted: set[str] = set()  #: who was sent presence
        latency = server.latency_of_one()
        self._up = Pipe(
            server.clock,
            latency,
            lambda stanza: server.on_stanza(self, stanza),
            lambda: server.on_ended(self),
        )
        self._down = Pipe(
            server.clock, latency, lambda stanza: deliver(self, stanza), lambda: ended(self)
        )

    def send(self, stanza: Stanza) -> None:
        """Sends a stanza from the node to the server."""
        self._up.send(stanza)

    def push(self, stanza: Stanza) -> None:
        """Sends a stanza from the server to the node."""
        self._down.send(stanza)

    def close(self, *, lossy: bool) -> None:
        """Closes the node's end."""
        self._down.abandon()
        self._up.close(lossy=lossy)

    def close_at_server(self, *, lossy: bool) -> None:
        """Closes the server's end."""
        self._up.abandon()
        self._down.close(lossy=lossy)

    def cut(self) -> None:
        """Lets neither direction carry anything."""
        self._up.cut()
        self._down.cut()

    def heal(self) -> None:
        """Lets both directions carry again."""
        self._up.heal()
        self._down.heal()


class Server:
    """Routes between the pool's component and the clients; says who became unavailable.

    A node's name is its address; the component's is the domain.

    Args:
        latency_seconds: bounds of a connection's typical one-way delay.
        domain: domain of the pool.
    """

    def __init__(
        self,
        clock: SimulationClock,
        random: Random,
        latency_seconds: tuple[float, float],
        domain: str = DOMAIN,
    ) -> None:
        self.domain = domain
        self.clock = clock
        self.up = True
        self._random = random
        self._latency_seconds = latency_seconds
        self._links: dict[str, Link] = {}
        self._cut_off: dict[str, list[Link]] = {}

    def latency_of_one(self) -> Callable[[], float]:
        """Makes a function for a connection's delays, around a typical one of its own."""
        typical = self._random.uniform(*self._latency_seconds)
        draw = self._random.random
        return lambda: typical * (0.5 + draw())

    def connect(
        self,
        name: str,
        deliver: Callable[[Link, Stanza], None],
        ended: Callable[[Link], None],
    ) -> Link | None:
        """Makes a connection, in place of an older one of that name; None if there is no way."""
        if not self.up or name in self._cut_off:
            return None
        older = self._links.get(name)
        if older is not None:
            self._drop(older, lossy=False)
        link = self._links[name] = Link(self, name, deliver, ended)
        return link

    def on_stanza(self, link: Link, stanza: Stanza) -> None:
        """Passes a stanza on, or a payload back to its sender if there is no receiver."""
        if self._links.get(link.name) is not link:
            return
        if stanza.sort == "on_presence":
            link.greeted.add(stanza.to)
        other = self._at(stanza.to)
        if other is not None:
            other.push(stanza)
        elif stanza.sort == "on_payload":
            link.push(Stanza("on_bounce", stanza.to, stanza.sender, GONE))

    def _at(self, address: str) -> Link | None:
        link = self._links.get(address)
        if link is None and address.endswith(f"@{self.domain}"):
            return self._links.get(self.domain)
        return link

    def on_ended(self, link: Link) -> None:
        """Drops a connection of which the node's end is gone."""
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
        for address in sorted(link.greeted):
            other = self._at(address)
            if other is not None:
                other.push(Stanza("on_presence", link.name, address, "unavailable"))

    def is_cut_off(self, name: str) -> bool:
        """Whether that node's machine has no network."""
        return name in self._cut_off

    def cut(self, name: str, link: Link | None) -> None:
        """Cuts the network of the machine of that node, which has this connection."""
        links = self._cut_off.setdefault(name, [])
        for each in (link, self._links.get(name)):
            if each is not None and each not in links:
                links.append(each)
                each.cut()

    def heal(self, name: str) -> None:
        """Makes the machine of that node reachable again."""
        for link in self._cut_off.pop(name, ()):
            link.heal()

    def stop(self) -> None:
        """Kills the server with all connections; nobody is told anything but that."""
        self.up = False
        links, self._links = self._links, {}
        for link in links.values():
            link.close_at_server(lossy=True)

    def start(self) -> None:
        """Takes connections again."""
        self.up = True
