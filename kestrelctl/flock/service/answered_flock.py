"""The flock as the answers to users' requests about it need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.protocol.views import FlockView, NeighbourView


class AnsweredFlock(Protocol):
    """The flock of one pool.

    Methods that change something return when that is durable. `by` is who wants it, for the log.
    """

    def status(self) -> FlockView:
        """The standing of the pool in its flock, with all loans."""
        ...

    def pools(self) -> Sequence[NeighbourView]:
        """The pools that it knows, in any order."""
        ...

    def rules(self) -> Sequence[FlockRule]:
        """The rules in force, in any order."""
        ...

    async def join(self, domain: str, by: str) -> None:
        """Joins the flock that a pool is in.

        Raises:
            UsageError: it is the pool itself, or cannot be a domain.
            StoreFull: nothing can be stored now.
        """

    async def forget(self, domain: str, by: str) -> None:
        """Stops joining through a pool.

        Raises:
            UsageError: the manager was started to join through it.
            NotFound: it does not join through that one.
            StoreFull: nothing can be stored now.
        """

    async def leave(self, by: str) -> None:
        """Leaves the flock.

        Raises:
            StoreFull: nothing can be stored now.
        """

    async def ping(self, domain: str) -> float:
        """Sends a pool's manager a message; returns the seconds until its answer.

        Raises:
            Unreachable: the pool cannot be reached.
            TimedOut: it does not answer.
        """
        ...
