"""Follows environments by looking at all of them again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec


class SeenEnvironment(Protocol):
    """An environment, as the manager knows it or tells of it."""

    @property
    def number(self) -> int: ...

    @property
    def of(self) -> str: ...

    @property
    def phase(self) -> str: ...

    @property
    def since(self) -> float: ...


class EnvironmentSpan(msgspec.Struct, kw_only=True):
    """One environment, from its order to its end, in seconds since the epoch.

    Attributes:
        ordered_at: when its host was told to start it.
        ready_at: when its worker joined; None if it never did.
        gone_at: when it was first found to be gone; None if it is still there.
    """

    number: int
    of: str
    ordered_at: float
    ready_at: float | None = None
    gone_at: float | None = None

    def starting_seconds(self, until: float) -> float:
        """Computes how long it held its host before it could work, up to a moment."""
        over_at = min(at for at in (self.ready_at, self.gone_at, until) if at is not None)
        return max(0.0, over_at - self.ordered_at)


class EnvironmentWatch:
    """Environments by their numbers.

    One that lives for a shorter time than passes between two looks is missed.
    """

    def __init__(self) -> None:
        self.spans: dict[int, EnvironmentSpan] = {}

    def look(self, there: Iterable[SeenEnvironment], now: float) -> None:
        """Notes what there is now."""
        numbers = set()
        for each in there:
            numbers.add(each.number)
            span = self.spans.get(each.number)
            if span is None:
                span = self.spans[each.number] = EnvironmentSpan(
                    number=each.number, of=each.of, ordered_at=each.since
                )
            span.gone_at = None  # a manager that was started anew has to hear of it first
            if each.phase == "ready" and span.ready_at is None:
                span.ready_at = each.since
        for number, span in self.spans.items():
            if number not in numbers and span.gone_at is None:
                span.gone_at = now

    def ready(self) -> int:
        """Counts the environments that have joined and are still there."""
        return sum(
            span.ready_at is not None and span.gone_at is None for span in self.spans.values()
        )
