"""A flock that is kept in memory, for tests of what users ask about it."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.errors import TimedOut
from kestrelctl.protocol.views import FlockView, NeighbourView


class AnsweredFlockTwin:
    """The twin of `flock.service.answered_flock.AnsweredFlock`.

    Attributes:
        view, neighbours, the_rules: what it tells.
        calls: (what, of what, by whom) of each change.
        round_trips: of the pools that answer pings, in seconds.
    """

    def __init__(self) -> None:
        self.view = FlockView(pool="pool", member=False)
        self.neighbours: list[NeighbourView] = []
        self.calls: list[tuple[str, ...]] = []
        self.round_trips: dict[str, float] = {}
        self.the_rules: list[FlockRule] = []

    def status(self) -> FlockView:
        return self.view

    def pools(self) -> Sequence[NeighbourView]:
        return self.neighbours

    def rules(self) -> Sequence[FlockRule]:
        return self.the_rules

    async def join(self, domain: str, by: str) -> None:
        self.calls.append(("join", domain, by))

    async def forget(self, domain: str, by: str) -> None:
        self.calls.append(("forget", domain, by))

    async def leave(self, by: str) -> None:
        self.calls.append(("leave", by))

    async def ping(self, domain: str) -> float:
        if domain not in self.round_trips:
            raise TimedOut(f"{domain} does not answer")
        return self.round_trips[domain]
