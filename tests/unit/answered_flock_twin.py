"""A flock that is kept in memory, for tests of what users ask about it."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.errors import NotFound, TimedOut
from kestrelctl.protocol.views import FlockView, NeighbourView


class AnsweredFlockTwin:
    """The twin of `flock.service.answered_flock.AnsweredFlock`.

    Attributes:
        view, neighbours: what it tells.
        calls: (what, of what, by whom) of each change.
        round_trips: of the pools that answer pings, in seconds.
    """

    def __init__(self) -> None:
        self.view = FlockView(pool="pool", member=False)
        self.neighbours: list[NeighbourView] = []
        self.calls: list[tuple[str, ...]] = []
        self.round_trips: dict[str, float] = {}
        self._rules: dict[str, FlockRule] = {}

    def status(self) -> FlockView:
        return self.view

    def pools(self) -> Sequence[NeighbourView]:
        return self.neighbours

    def rules(self) -> Sequence[FlockRule]:
        return list(self._rules.values())

    async def join(self, domain: str, by: str) -> None:
        self.calls.append(("join", domain, by))

    async def forget(self, domain: str, by: str) -> None:
        self.calls.append(("forget", domain, by))

    async def leave(self, by: str) -> None:
        self.calls.append(("leave", by))

    async def put_rule(self, rule: FlockRule, by: str) -> None:
        self.calls.append(("put", rule.name, by))
        self._rules[rule.name] = rule

    async def drop_rule(self, name: str, by: str) -> None:
        if name not in self._rules:
            raise NotFound(f"there is no rule {name!r}")
        self.calls.append(("drop", name, by))
        del self._rules[name]

    async def ping(self, domain: str) -> float:
        if domain not in self.round_trips:
            raise TimedOut(f"{domain} does not answer")
        return self.round_trips[domain]
