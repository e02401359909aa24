"""The state of another pool, as far as this one can tell: one of `NEIGHBOUR_STATES`."""

from __future__ import annotations

from collections.abc import Container

from kestrelctl.protocol.pools import PoolAnnouncement


def state_of(pool: str, said: PoolAnnouncement | None, unreachable: Container[str]) -> str:
    """Tells the state of a pool.

    Args:
        said: its announcement that still holds; None if there is none.
        unreachable: pools to which messages come back.
    """
    if pool in unreachable:
        return "unreachable"
    if said is None:
        return "silent"
    if not said.willing:
        return "unwilling"
    return "free" if any(each.free.get("cpus", 0.0) > 0 for each in said.classes) else "full"
