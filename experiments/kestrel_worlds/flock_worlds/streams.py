"""Servers of several pools, and the streams between them, as far as their failures matter.

A stream delivers in order or not at all. What is in flight when it breaks is lost without a word;
what is sent while the other server cannot be reached comes back. As with real servers, nobody is
told that a component of another server has gone: what it last said of its presence stands.
"""

from __future__ import annotations

from random import Random

from kestrel_worlds.network import GONE, Link, Pipe, Server, Stanza
from kestrel_worlds.simulation_clock import SimulationClock

#: The conditions with which a message comes back that did not get to the other server.
UNREACHABLE = ("remote-server-not-found", "remote-server-timeout")
#: How long the server tries before it says so.
TRIES_SECONDS = (0.0, 1.0)


class Stream:
    """One direction between two servers.

    Attributes:
        disturbed_at: when something last happened to it.
    """

    def __init__(
        self,
        random: Random,
        latency_seconds: tuple[float, float],
        here: FlockServer,
        there: FlockServer,
    ) -> None:
        typical = random.uniform(*latency_seconds)
        self._random = random
        self._latency = lambda: typical * (0.5 + random.random())
        self.clock: SimulationClock = here.clock
        self._here, self._there = here, there
        self._held = self._refused = False
        self.disturbed_at = self.clock.now
        self._pipe = self._open()

    def _open(self) -> Pipe:
        return Pipe(self.clock, self._latency, self._there.from_afar, lambda: None)

    @property
    def in_order(self) -> bool:
        """Whether what is sent now arrives."""
        return self._here.up and self._there.up and not (self._held or self._refused)

    def send(self, stanza: Stanza) -> None:
        """Carries a stanza, or brings it back."""
        if self._refused or not self._there.up:
            condition = self._random.choice(UNREACHABLE)
            seconds = self._random.uniform(*TRIES_SECONDS)
            self.clock.after(seconds, self._here.bring_back, stanza, condition)
        else:
            self._pipe.send(stanza)

    def drop(self) -> None:
        """Breaks it, with what is in flight; the next stanza opens another."""
        self.disturbed_at = self.clock.now
        self._pipe.abandon()
        self._pipe = self._open()
        if self._held:
            self._pipe.cut()

    def hold(self) -> None:
        """Holds up everything until it heals; nobody is told."""
        self.disturbed_at = self.clock.now
        self._held = True
        self._pipe.cut()

    def refuse(self) -> None:
        """Keeps it from finding the other server until it heals."""
        self.drop()
        self._refused = True

    def heal(self) -> None:
        """Lets it carry again."""
        if self._held or self._refused:
            self.disturbed_at = self.clock.now
        self._refused = False
        if self._held:
            self._held = False
            self._pipe.heal()


class FlockServer(Server):
    """The server of one pool, which knows those of others.

    Attributes:
        streams: the streams to each other server, by its domain.
    """

    def __init__(
        self,
        clock: SimulationClock,
        random: Random,
        latency_seconds: tuple[float, float],
        domain: str,
    ) -> None:
        super().__init__(clock, random, latency_seconds, domain)
        self.streams: dict[str, Stream] = {}
        self._others: list[FlockServer] = []

    def know(
        self, other: FlockServer, random: Random, latency_seconds: tuple[float, float]
    ) -> None:
        """Makes the streams to another server and from there."""
        self.streams[other.domain] = Stream(random, latency_seconds, self, other)
        other.streams[self.domain] = Stream(random, latency_seconds, other, self)
        self._others.append(other)
        other._others.append(self)

    def on_stanza(self, link: Link, stanza: Stanza) -> None:
        stream = self.streams.get(_pool_of(stanza.to))
        if stream is None:
            super().on_stanza(link, stanza)
        elif self._links.get(link.name) is link:
            # A server vouches for the domain of whoever sends.
            assert _host_of(stanza.sender) == link.name == self.domain, stanza
            stream.send(stanza)

    def from_afar(self, stanza: Stanza) -> None:
        """Takes a stanza that arrives from another server."""
        if not self.up:
            return
        component = self._at(stanza.to)
        if component is not None:
            component.push(stanza)
        elif stanza.sort == "on_payload":
            back = Stanza("on_bounce", stanza.to, stanza.sender, GONE)
            self.streams[_pool_of(stanza.sender)].send(back)

    def bring_back(self, stanza: Stanza, condition: str) -> None:
        """Bounces a stanza that could not be brought to the other server."""
        component = self._at(stanza.sender)
        if component is not None and self.up and stanza.sort == "on_payload":
            component.push(Stanza("on_bounce", stanza.to, stanza.sender, condition))

    def _at(self, address: str) -> Link | None:
        return super()._at(
            address.partition("/")[0] if _host_of(address) == self.domain else address
        )

    def stop(self) -> None:
        super().stop()
        for other in self._others:
            self.streams[other.domain].drop()
            other.streams[self.domain].drop()


def _host_of(address: str) -> str:
    return address.partition("/")[0].rpartition("@")[2]


def _pool_of(address: str) -> str:
    """Returns the domain of the pool of an address: users and workers are below it."""
    return _host_of(address).rpartition(".")[2]
