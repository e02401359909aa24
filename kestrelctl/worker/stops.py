"""Answers stops (SIGSTOP) of a process, which somebody may repeat again and again."""

from __future__ import annotations

import signal
from collections import deque

MOST_STOPS = 10
STOPS_SECONDS = 60.0


class Stops:
    """The stops of one process.

    It goes on each time, so that nobody can halt it. Whoever stops it more than `MOST_STOPS` times
    in `STOPS_SECONDS` would leave it no time of its own: then it is to be killed, with its tasks,
    and started again.
    """

    def __init__(self) -> None:
        self._moments: deque[float] = deque(maxlen=MOST_STOPS)

    def answer(self, now: float) -> signal.Signals:
        """Returns the signal to send to the process that has just been stopped.

        Args:
            now: monotonic seconds.
        """
        full = len(self._moments) == MOST_STOPS
        if full and now - self._moments[0] < STOPS_SECONDS:
            return signal.SIGKILL
        self._moments.append(now)
        return signal.SIGCONT
