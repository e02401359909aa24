"""To whom a message goes that is meant for the pool whose id is nearest to some id."""

from __future__ import annotations

from collections.abc import Collection

from kestrelctl.flock.overlay.leaf_set import LeafSet
from kestrelctl.flock.overlay.pool_ids import between, pool_id, shared_digits
from kestrelctl.flock.overlay.routing_table import RoutingTable


def next_hop(
    own: str, key: int, leaves: LeafSet, table: RoutingTable, without: Collection[str] = ()
) -> str | None:
    """The next pool on the way: each shares more digits with the id, or is nearer to it.

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
