"""What the pool answers about its flock. `docs/protocol.md` shows one of each."""

from __future__ import annotations

from typing import TypeAlias

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.protocol.flock_views import FlockView, NeighbourView
from kestrelctl.protocol.reply import Reply


class FlockStatus(Reply, frozen=True, kw_only=True, tag="flock"):
    """How the pool stands in its flock."""

    flock: FlockView


class Neighbours(Reply, frozen=True, kw_only=True, tag="flock_pools"):
    """A page of the pools that this one knows, by domain.

    Attributes:
        after: asks for the next page; None if this was the last.
    """

    pools: list[NeighbourView]
    after: str | None = None


class FlockPong(Reply, frozen=True, kw_only=True, tag="flock_pong"):
    """Another pool's manager has answered.

    Attributes:
        seconds: how long that took.
    """

    pool: str
    seconds: float


class FlockRules(Reply, frozen=True, kw_only=True, tag="flock_rules"):
    """All rules on lending and borrowing, in the order in which they are asked.

    Attributes:
        rest: for `lend` and `borrow`: whether what no rule fits is allowed.
    """

    rules: list[FlockRule]
    rest: dict[str, bool]


FlockAnswer: TypeAlias = FlockStatus | Neighbours | FlockPong | FlockRules
