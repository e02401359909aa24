"""Measures how late an event loop runs its timers, and so everything else in its process."""

from __future__ import annotations

import asyncio

from kestrelctl.core.counting.histogram import Histogram

PROBE_SECONDS = 0.25
#: asyncio itself is late by up to a millisecond.
LAG_BOUNDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
#: The maximum is that of the last one to two such spans. A scrape does not reset it, because
#: several servers may scrape and each has to see it.
MAXIMUM_SECONDS = 30.0


class LoopLag:
    """A timer that notes by how much it is late, four times a second."""

    def __init__(self) -> None:
        self.seconds = Histogram(LAG_BOUNDS)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._maxima = [0.0, 0.0]
        self._turn_at = 0.0

    @property
    def max_seconds(self) -> float:
        """The largest lag of the last 30 to 60 seconds."""
        return max(self._maxima)

    def start(self) -> None:
        """Starts to measure."""
        self._turn_at = self._loop.time() + MAXIMUM_SECONDS
        self._timer = self._loop.call_later(PROBE_SECONDS, self._probe)

    def stop(self) -> None:
        """Stops measuring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _probe(self) -> None:
        assert self._timer is not None
        moment = self._loop.time()
        late = max(0.0, moment - self._timer.when())
        self.seconds.observe(late)
        if moment >= self._turn_at:
            self._turn_at = moment + MAXIMUM_SECONDS
            self._maxima = [0.0, self._maxima[0]]
        self._maxima[0] = max(self._maxima[0], late)
        self._timer = self._loop.call_at(moment + PROBE_SECONDS, self._probe)
