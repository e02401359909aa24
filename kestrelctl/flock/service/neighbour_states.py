"""In which state another pool is, as far as this one can tell: one of `NEIGHBOUR_STATES`."""

from __future__ import annotations

from collections.abc import Container

from kestrelctl.protocol.pools import PoolAnnouncement


def state_of(pool: str, said: PoolAnnouncement | None, unreachable: Container[str]) -> str:
    """The state of a pool.

    Args:
        said: what it has announced and still holds; None for nothing.
        unreachable: pools to which messages come back.
    """
    if pool in unreachable:
        return "unreachable"
    if said is None:
        return "silent"
    if not said.willing:
        return "unwilling"
    return "free" if any(each.free.get("cpus", 0.0) > 0 for each in said.classes) else "full"
