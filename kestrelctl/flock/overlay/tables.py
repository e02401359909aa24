"""The leaf set and the routing table of a pool: who is in them, and who would be."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from kestrelctl.flock.overlay.leaf_set import LeafSet
from kestrelctl.flock.overlay.peers import FEW_SAMPLES, Peer, Peers
from kestrelctl.flock.overlay.pool_ids import between, pool_id, shared_digits
from kestrelctl.flock.overlay.routing_table import RoutingTable
from kestrelctl.protocol.pools import DIGITS


def next_hop(
    own: str, key: int, leaves: LeafSet, table: RoutingTable, without: Collection[str] = ()
) -> str | None:
    """Returns the next pool on the way: each shares more digits with the id, or is nearer to it.

    Rowstron and Druschel, figure 3.

    Args:
        own: the pool that asks itself.
        key: the id.
        without: pools that do not count.

    Returns:
        None if no pool that is known is nearer than the pool itself.
    """

    def distance(domain: str) -> tuple[int, str]:
        return between(pool_id(domain), key), domain

    near = [domain for domain in leaves.members() if domain not in without]
    if leaves.covers(key):
        best = min([own, *near], key=distance)
        return None if best == own else best
    slot = table.at(table.slot_of(key))
    if slot is not None and slot not in without:
        return slot
    shared = shared_digits(pool_id(own), key)
    known = near + [domain for domain in table.members() if domain not in without]
    nearer = [pool for pool in known if shared_digits(pool_id(pool), key) >= shared]
    best = min([own, *nearer], key=distance)
    return None if best == own else best


#: The number of pools of a row that are asked who could take the place of one of them.
ROW_REPAIRS = 3
NEAREST_FEW = 4


class Neighbour(NamedTuple):
    """One place in a pool's tables, and the pool that has it.

    Attributes:
        place: row and digit of the routing table (`0/c`), or which one of the leaves: `+1` is the
            nearest with a larger id.
        heard_at: when it gave the last sign of life, by the clock that is handed in.
    """

    place: str
    domain: str
    round_trip_seconds: float
    heard_at: float


class Tables:
    """The leaf set and the routing table, with what is known of the pools in them.

    Args:
        domain: the pool whose tables they are.
    """

    def __init__(self, domain: str) -> None:
        own_id = pool_id(domain)
        self._domain = domain
        self.leaves = LeafSet(own_id)
        self.routing = RoutingTable(own_id)
        self.peers = Peers()

    def is_placed(self, domain: str) -> bool:
        """Whether a pool is in either table."""
        return domain in self.peers.members

    def is_wanted(self, domain: str) -> bool:
        """Whether a pool that is in neither would have a place if it answered."""
        return self.routing.rival(domain) is None or self.leaves.wants(domain)

    def may_be_nearer(self, domain: str) -> bool:
        """Whether a pool that is in neither may be nearer than the one in its slot."""
        peer, rival = self.peers.get(domain), self.routing.rival(domain)
        return (
            peer is None
            or peer.samples < FEW_SAMPLES
            or (rival is not None and peer.is_nearer_than(self.peers.members[rival]))
        )

    def admit(self, peer: Peer) -> bool:
        """Gives a pool that has answered the places that it should have.

        Returns:
            whether it is a new leaf.
        """
        domain, displaced = peer.domain, []
        was_leaf = domain in self.leaves
        if self.leaves.wants(domain):
            displaced = self.leaves.add(domain)
        rival = self.routing.rival(domain)
        if rival is None or peer.is_nearer_than(self.peers.members[rival]):
            self.routing.put(domain)
            displaced += [] if rival is None else [rival]
        if domain in self.leaves or domain in self.routing:
            self.peers.promote(peer)
        for left in displaced:
            if left in self.peers.members and not (left in self.leaves or left in self.routing):
                self.peers.demote(left)
        return domain in self.leaves and not was_leaf

    def remove(self, domain: str) -> tuple[list[tuple[str, int]], list[str]]:
        """Removes a pool that is not there; others in the tables take its places if they can.

        Returns:
            (pool, row) of the pools that may know one for a place, the row as in `AskPools`; and
            the pools that became leaves.
        """
        if self.peers.forget(domain) is None:
            return [], []
        ask = [(leaf, DIGITS) for leaf in self.leaves.discard(domain)]
        if self.routing.discard(domain):
            row, _ = self.routing.slot_of(pool_id(domain))
            ask += [(other, row) for other in self.routing.rows(row, DIGITS)[-ROW_REPAIRS:]]
        return ask, [peer.domain for peer in [*self.peers.members.values()] if self.admit(peer)]

    def next_hop(self, key: int, without: Collection[str] = ()) -> str | None:
        """The next pool on the way to the one whose id is nearest to this; None for this pool."""
        return next_hop(self._domain, key, self.leaves, self.routing, without)

    def nearest_few(self) -> list[str]:
        """Some pools of the routing table with the shortest round trips."""
        members = self.peers.members
        return sorted(
            self.routing.members(), key=lambda domain: members[domain].round_trip_seconds
        )[:NEAREST_FEW]

    def neighbours(self) -> list[Neighbour]:
        """All places that are taken, for people."""
        places = [(f"{row}/{digit:x}", pool) for (row, digit), pool in self.routing.entries()]
        places += [(f"+{place}", pool) for place, pool in enumerate(self.leaves.larger(), 1)]
        places += [(f"-{place}", pool) for place, pool in enumerate(self.leaves.smaller(), 1)]
        found = []
        for place, domain in places:
            peer = self.peers.members[domain]
            found.append(Neighbour(place, domain, peer.round_trip_seconds, peer.heard_at))
        return found
