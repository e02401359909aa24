"""What is durable of the flock: the rules of lending and borrowing, and pools to find it by.

The core keeps it, and nothing else here asks for it: what it comes to is decided in the flock.
"""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import FlockPeer, FlockPeerGone, FlockRecord, FlockRuleGone

#: So many rules a pool may have, and so many pools it is told to join through.
MAX_RULES = 100
MAX_THROUGH = 16
#: So many pools are remembered besides: those heard of last.
MAX_REMEMBERED = 64


class FlockMemory:
    """Rules by name, pools by domain."""

    def __init__(self) -> None:
        self.rules: dict[str, FlockRule] = {}
        self.peers: dict[str, FlockPeer] = {}

    def problem_with(self, record: FlockRecord) -> tuple[str, str] | None:
        """The code and the words of the error if a record cannot be applied; None if it can."""
        if isinstance(record, FlockRule):
            if record.name not in self.rules and len(self.rules) >= MAX_RULES:
                return "usage", f"a pool has at most {MAX_RULES} rules of its flock"
        elif isinstance(record, FlockRuleGone):
            if record.name not in self.rules:
                return "not-found", f"there is no rule {record.name[:80]!r}"
        elif isinstance(record, FlockPeer) and record.through:
            others = [peer for peer in self.peers.values() if peer.through]
            if len(others) >= MAX_THROUGH and record.pool not in {peer.pool for peer in others}:
                return "usage", f"a pool joins its flock through at most {MAX_THROUGH} others"
        return None

    def apply(self, record: FlockRecord) -> None:
        """Takes a record in."""
        if isinstance(record, FlockRule):
            self.rules[record.name] = record
        elif isinstance(record, FlockRuleGone):
            self.rules.pop(record.name, None)
        elif isinstance(record, FlockPeer):
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
