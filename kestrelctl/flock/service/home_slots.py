"""Places in the file share of a guest's home, for what the guest has left.

The home gives them to pools that hold tasks of its own, and to no others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeAlias

from kestrelctl.errors import BY_CODE, KestrelError, TimedOut
from kestrelctl.protocol.pools import GivenSlot, WantSlot
from kestrelctl.protocol.upload_slots import PieceTooLarge, Slot

#: The time that a home may take to answer.
ANSWER_SECONDS = 20.0
#: The most places that one pool is given in a minute, on average and at once.
SLOTS_PER_MINUTE = 600.0

#: Asks the own share for a place: (size in bytes, file name).
OwnSlots: TypeAlias = Callable[[int, str], Awaitable[Slot]]


class HomeSlots:
    """Asks homes for places.

    Args:
        send: sends a pool's flock a message.
    """

    def __init__(self, send: Callable[[str, WantSlot], None]) -> None:
        self._send = send
        self._ids = itertools.count(1)
        self._asked: dict[str, tuple[str, asyncio.Future[GivenSlot]]] = {}

    async def ask(self, pool: str, size_bytes: int, filename: str) -> Slot:
        """Asks for a place in the share of a pool.

        Raises:
            KestrelError: the pool gives none, and says why.
            PieceTooLarge: its share takes only smaller ones.
            TimedOut: it does not answer.
        """
        request = str(next(self._ids))
        answered: asyncio.Future[GivenSlot] = asyncio.get_running_loop().create_future()
        self._asked[request] = (pool, answered)
        try:
            self._send(pool, WantSlot(request=request, size_bytes=size_bytes, filename=filename))
            async with asyncio.timeout(ANSWER_SECONDS):
                given = await answered
        except TimeoutError:
            raise TimedOut(f"{pool} gave no place for a file in time") from None
        finally:
            del self._asked[request]
        if given.most_bytes:
            raise PieceTooLarge(given.most_bytes)
        if given.problem:
            raise BY_CODE.get(given.code, KestrelError)(f"{pool}: {given.problem}")
        return Slot(given.put_url, given.get_url, given.headers)

    def hear(self, pool: str, given: GivenSlot) -> bool:
        """Takes in a pool's answer; returns whether it was asked."""
        asked, answered = self._asked.get(given.request, ("", None))
        if answered is None or asked != pool or answered.done():
            return False
        answered.set_result(given)
        return True


class SlotGiver:
    """Gives pools places in the own share.

    Args:
        own: asks the own share; None where there is none.
        holders: the pools that hold tasks of this one now.
        send: sends a pool's flock a message.
        now: seconds of a steady clock.
    """

    def __init__(
        self,
        own: OwnSlots | None,
        holders: Callable[[], Collection[str]],
        send: Callable[[str, GivenSlot], None],
        now: Callable[[], float],
    ) -> None:
        self._own = own
        self._holders = holders
        self._send = send
        self._now = now
        self._budgets: dict[str, tuple[float, float]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def give(self, pool: str, wanted: WantSlot) -> None:
        """Answers a pool that wants a place."""
        problem = self._problem(pool)
        if problem is not None:
            code, why = problem
            self._send(pool, GivenSlot(request=wanted.request, problem=why, code=code))
            return
        task = asyncio.get_running_loop().create_task(self._give(pool, wanted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _problem(self, pool: str) -> tuple[str, str] | None:
        if self._own is None:
            return "not-found", "this pool has no file share"
        if pool not in self._holders():
            return "not-allowed", "the pool holds no task of this one"
        moment = self._now()
        left, at = self._budgets.get(pool, (SLOTS_PER_MINUTE, moment))
        left = min(SLOTS_PER_MINUTE, left + (moment - at) * SLOTS_PER_MINUTE / 60)
        self._budgets[pool] = (left - 1 if left >= 1 else left, moment)
        return None if left >= 1 else ("busy", "the pool asks for too many places")

    async def _give(self, pool: str, wanted: WantSlot) -> None:
        assert self._own is not None
        try:
            slot = await self._own(wanted.size_bytes, wanted.filename)
            answer = GivenSlot(
                request=wanted.request,
                put_url=slot.put_url,
                get_url=slot.get_url,
                headers=dict(slot.headers),
            )
        except PieceTooLarge as error:
            answer = GivenSlot(request=wanted.request, most_bytes=error.most_bytes)
        except KestrelError as error:
            why = f"{error.message}{f' ({error.cause})' if error.cause else ''}"[:500]
            answer = GivenSlot(request=wanted.request, problem=why, code=error.code)
        self._send(pool, answer)
