"""Pools that have answered: when they were last heard, and how far away they are."""

from __future__ import annotations

#: The round trips by which a pool is judged: a new connection makes the first one longer.
FEW_SAMPLES = 2
#: The weight of a later measurement.
_WEIGHT = 0.25
#: A pool takes another's place only if it is nearer by so much: two measurements always differ.
_NEARER = 0.8
#: The most pools that are remembered though they are in no table.
MOST_ACQUAINTANCES = 200


class Peer:
    """A pool that has answered a ping.

    Attributes:
        heard_at: when its last message came.
        samples: how many round trips were measured.
        round_trip_seconds: the shortest of the first ones, then smoothed.
    """

    __slots__ = ("domain", "heard_at", "round_trip_seconds", "samples")

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.heard_at = 0.0
        self.samples = 0
        self.round_trip_seconds = 0.0

    def measured(self, seconds: float) -> None:
        """Takes in a round trip."""
        if not self.samples:
            self.round_trip_seconds = seconds
        elif self.samples < FEW_SAMPLES:
            self.round_trip_seconds = min(self.round_trip_seconds, seconds)
        else:
            self.round_trip_seconds += _WEIGHT * (seconds - self.round_trip_seconds)
        self.samples += 1

    def is_nearer_than(self, other: Peer) -> bool:
        """Whether it is clearly nearer, as far as both were measured."""
        return (
            min(self.samples, other.samples) >= FEW_SAMPLES
            and self.round_trip_seconds < _NEARER * other.round_trip_seconds
        )


class Peers:
    """The pools in the tables, and acquaintances: the pools that are in none.

    The number of acquaintances is bounded; the one that was met first makes room.
    """

    __slots__ = ("acquaintances", "members")

    def __init__(self) -> None:
        self.members: dict[str, Peer] = {}
        self.acquaintances: dict[str, Peer] = {}

    def get(self, domain: str) -> Peer | None:
        """Returns a pool that has answered; None if it has not."""
        return self.members.get(domain) or self.acquaintances.get(domain)

    def meet(self, domain: str) -> Peer:
        """Returns a pool that has answered now; a new one is an acquaintance."""
        peer = self.get(domain)
        if peer is None:
            peer = self.acquaintances[domain] = Peer(domain)
            if len(self.acquaintances) > MOST_ACQUAINTANCES:
                del self.acquaintances[next(iter(self.acquaintances))]
        return peer

    def promote(self, peer: Peer) -> None:
        """Notes that a pool is in a table now."""
        self.acquaintances.pop(peer.domain, None)
        self.members[peer.domain] = peer

    def demote(self, domain: str) -> None:
        """Notes that a pool is in no table any more."""
        self.acquaintances[domain] = self.members.pop(domain)

    def forget(self, domain: str) -> Peer | None:
        """Forgets a pool; returns what was known of it if it was in a table."""
        self.acquaintances.pop(domain, None)
        return self.members.pop(domain, None)

    def forget_acquaintances(self, before: float) -> None:
        """Forgets the acquaintances that were not heard since a time."""
        stale = [domain for domain, peer in self.acquaintances.items() if peer.heard_at < before]
        for domain in stale:
            del self.acquaintances[domain]

    def domains(self) -> list[str]:
        """All pools, those in the tables first."""
        return [*self.members, *self.acquaintances]
