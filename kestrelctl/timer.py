"""One planned call on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timer:
    """Calls something once, later. At most one call is planned.

    Args:
        call: what is called; it may set the timer again.
        loop: the loop that calls it; None for the one that runs when the timer is set.
    """

    __slots__ = ("_call", "_handle", "_loop")

    def __init__(
        self, call: Callable[[], object], loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self._call = call
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether a call is planned."""
        return self._handle is not None

    @property
    def moment(self) -> float | None:
        """The moment of the planned call, by the loop's clock; None if none is planned."""
        return None if self._handle is None else self._handle.when()

    def set(self, seconds: float) -> None:
        """Plans the call for so many seconds from now, in place of an earlier plan."""
        self.stop()
        self._handle = self._running().call_later(seconds, self._due)

    def set_once(self, seconds: float) -> None:
        """Plans the call for so many seconds from now, unless one is planned already."""
        if self._handle is None:
            self._handle = self._running().call_later(seconds, self._due)

    def set_by(self, moment: float) -> None:
        """Plans the call for a moment of the loop's clock; an earlier call stays."""
        if self._handle is not None:
            if self._handle.when() <= moment:
                return
            self._handle.cancel()
        self._handle = self._running().call_at(moment, self._due)

    def stop(self) -> None:
        """Cancels the planned call."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _running(self) -> asyncio.AbstractEventLoop:
        return self._loop if self._loop is not None else asyncio.get_running_loop()

    def _due(self) -> None:
        self._handle = None
        self._call()
