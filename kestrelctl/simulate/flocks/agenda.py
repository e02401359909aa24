"""What is to happen, in the order of moments: millions of events, most of them soon forgotten.

A heap of all that is to come would be deep, and far apart in memory. So events are thrown unsorted
into spans of time, and only those of the span that is now are a heap.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

#: (moment, number, what to call, its arguments)
Event = tuple[float, int, Callable[[Any, Any], None], Any, Any]

#: How long a span is: some hundred events of a large flock.
SPAN_SECONDS = 0.5


class Agenda:
    """Calls what was asked for, at its simulated moment; within one moment in the order of asking.

    Attributes:
        now: the moment of what is being called.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._spans: dict[int, list[Event]] = {}
        self._numbers: list[int] = []
        self._soon: list[Event] = []
        self._soon_until = now
        self._asked = 0

    def at(self, moment: float, call: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        """Asks for `call(a, b)` at a moment that is not past."""
        self._asked += 1
        event = (moment, self._asked, call, a, b)
        if moment < self._soon_until:
            heappush(self._soon, event)
            return
        number = int(moment // SPAN_SECONDS)
        span = self._spans.get(number)
        if span is None:
            self._spans[number] = [event]
            heappush(self._numbers, number)
        else:
            span.append(event)

    def run(self, until: float) -> None:
        """Lets time pass up to a moment: all that is to happen before it does."""
        soon = self._soon
        while True:
            while soon and soon[0][0] < until:
                self.now, _, call, a, b = heappop(soon)
                call(a, b)
            if soon or not self._numbers or self._numbers[0] * SPAN_SECONDS >= until:
                self.now = until
                return
            number = heappop(self._numbers)
            self._soon_until = (number + 1) * SPAN_SECONDS
            soon += self._spans.pop(number)
            heapify(soon)
