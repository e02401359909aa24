"""The pools to find the flock by. The core keeps them, and nothing else here asks for them."""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.model.records import FlockPeer, FlockPeerGone, FlockRecord

#: The most pools that a pool may be told to join through.
MAX_THROUGH = 16
#: The most other pools that are remembered: those heard of last.
MAX_REMEMBERED = 64


class FlockMemory:
    """Pools by domain."""

    def __init__(self) -> None:
        self.peers: dict[str, FlockPeer] = {}

    def problem_with(self, record: FlockRecord) -> str | None:
        """The reason why a record cannot be applied; None if it can."""
        if isinstance(record, FlockPeer) and record.through:
            others = [peer for peer in self.peers.values() if peer.through]
            if len(others) >= MAX_THROUGH and record.pool not in {peer.pool for peer in others}:
                return f"a pool joins its flock through at most {MAX_THROUGH} others"
        return None

    def apply(self, record: FlockRecord) -> None:
        """Takes a record in."""
        if isinstance(record, FlockPeer):
            self.peers[record.pool] = record
        else:
            self.peers.pop(record.pool, None)

    def surplus(self) -> list[FlockPeerGone]:
        """The pools that are remembered beyond `MAX_REMEMBERED`, those heard of first."""
        heard = sorted(
            (peer for peer in self.peers.values() if not peer.through),
            key=lambda peer: (peer.heard_at, peer.pool),
        )
        more = max(0, len(heard) - MAX_REMEMBERED)
        return [FlockPeerGone(peer.pool) for peer in heard[:more]]

    def restore(self, records: Iterable[FlockRecord]) -> None:
        """Takes in what the store has."""
        for record in records:
            self.apply(record)
