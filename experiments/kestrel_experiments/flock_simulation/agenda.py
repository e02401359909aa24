"""Events in the order of their moments: there are millions, and most are soon forgotten.

A heap of all events would be deep, and scattered in memory. So events are thrown unsorted into
spans of time. Those of the current span are sorted, and only events that are asked for meanwhile
are in a heap.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import ceil, floor
from operator import itemgetter
from typing import Any

#: (moment, what to call, its arguments)
Event = tuple[float, Callable[[Any, Any], None], Any, Any]
#: The same with a number after the moment: within one moment, the lower number comes first.
NumberedEvent = tuple[float, int, Callable[[Any, Any], None], Any, Any]

#: The number of spans in a second: one holds some hundred events of a large flock.
SPANS_PER_SECOND = 2
_MOMENT = itemgetter(0)


class Agenda:
    """Makes each call at its simulated moment; within one moment, in the order of asking.

    Attributes:
        now: the moment of the call that is being made.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        #: The events of each span from the first on, in the order of asking: a sort by the moments
        #: alone keeps that order.
        self._spans: list[list[Event] | None] = []
        self._first = floor(now * SPANS_PER_SECOND)
        self._next_span = 0
        #: The current span: the last event is the next, so that it can be taken off.
        self._soon: list[Event] = []
        #: The events of this span that were asked for since it began.
        self._new: list[NumberedEvent] = []
        self._soon_until = now
        self._count = count().__next__

    def at(self, moment: float, call: Callable[[Any, Any], None], a: Any, b: Any) -> None:
        """Asks for `call(a, b)` at a moment that is not past."""
        if moment < self._soon_until:
            heappush(self._new, (moment, self._count(), call, a, b))
            return
        spans, number = self._spans, floor(moment * SPANS_PER_SECOND) - self._first
        while number >= len(spans):
            spans.append(None)
        span = spans[number]
        if span is None:
            spans[number] = [(moment, call, a, b)]
        else:
            span.append((moment, call, a, b))

    def run(self, until: float) -> None:
        """Lets time pass up to a moment: makes all calls that are due before it."""
        soon, new = self._soon, self._new
        while True:
            while soon or new:
                if not new or (soon and soon[-1][0] <= new[0][0]):
                    moment, call, a, b = soon[-1]
                    if moment >= until:
                        break
                    soon.pop()
                else:
                    if new[0][0] >= until:
                        break
                    moment, _, call, a, b = heappop(new)
                self.now = moment
                call(a, b)
            if soon or new or not self._begin_span(until):
                self.now = until
                return

    def _begin_span(self, until: float) -> bool:
        """Takes up the next span in which something happens; returns whether one begins by then."""
        spans, number = self._spans, self._next_span
        most = min(len(spans), ceil(until * SPANS_PER_SECOND) - self._first)
        while number < most:
            events = spans[number]
            if events is not None:
                spans[number] = None
                self._soon_until = (self._first + number + 1) / SPANS_PER_SECOND
                self._soon += events
                self._soon.sort(key=_MOMENT)
                self._soon.reverse()
                break
            number += 1
        else:  # in the span of `until` something may still be asked for
            number = min(number, floor(until * SPANS_PER_SECOND) - self._first)
        self._next_span = number
        return bool(self._soon)
