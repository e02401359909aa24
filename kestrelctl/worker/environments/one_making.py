"""Things that are made once, however many ask for them while they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class OneMaking(Generic[Made]):
    """The things that are being made now, by name."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Future[Made]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._under_way

    async def of(self, name: Hashable, make: Callable[[], Awaitable[Made]]) -> Made:
        """Makes a thing, and returns it; a caller that gives up leaves it to be made.

        Args:
            make: begins to make it, unless somebody else has begun.
        """
        work = self._under_way.get(name)
        if work is None:
            work = self._under_way[name] = asyncio.ensure_future(make())
            work.add_done_callback(lambda done: self._done(name, done))
        return await asyncio.shield(work)

    def _done(self, name: Hashable, work: asyncio.Future[Made]) -> None:
        del self._under_way[name]
        if not work.cancelled():
            work.exception()  # Else asyncio complains if nobody has waited for it.

    def close(self) -> None:
        """Gives up what is being made."""
        for work in self._under_way.values():
            work.cancel()
