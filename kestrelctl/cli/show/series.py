"""Estimates, from counts seen now and then, how fast a count grows and how long the rest takes."""

from __future__ import annotations

import math

#: Older sightings of a count are forgotten.
HISTORY_SECONDS = 900.0
BLOCKS = "▁▂▃▄▅▆▇█"


class Series:
    """A count that only grows, as it was seen.

    Between two sightings it is taken to have grown evenly. If it is smaller than before, somebody
    began to count anew; nothing is subtracted then.

    Args:
        window_seconds: the least time of the recent past that a rate is taken over.
    """

    def __init__(self, window_seconds: float = 10.0, enough: float = 30.0) -> None:
        self._window_seconds = window_seconds
        self._enough = enough
        self._seen: list[tuple[float, float]] = []
        self._last = 0

    def add(self, at: float, count: int, *, anew: bool = False) -> None:
        """Adds a sighting; one that is not later than the last is ignored.

        Args:
            anew: whether it was counted from 0 since the last sighting.
        """
        if not self._seen:
            self._seen.append((at, 0.0))
        elif at > self._seen[-1][0]:
            grown = count if anew else max(0, count - self._last)
            self._seen.append((at, self._seen[-1][1] + grown))
            if self._seen[1][0] < at - 2 * HISTORY_SECONDS:
                self._seen = [each for each in self._seen if each[0] >= at - HISTORY_SECONDS]
        else:
            return
        self._last = count

    @property
    def recent(self) -> float | None:
        """The rate in the window; None until it was seen twice."""
        return self._since(self._window_start()) if len(self._seen) > 1 else None

    @property
    def per_second(self) -> float | None:
        """The rate in the window, or over as much longer as it takes to have seen enough."""
        if len(self._seen) < 2:
            return None
        return self._since(min(self._window_start(), self._enough_since()))

    def _window_start(self) -> float:
        return max(self._seen[0][0], self._seen[-1][0] - self._window_seconds)

    def _enough_since(self) -> float:
        """The latest moment since which it has grown by enough; else that of the first sighting."""
        seen = self._seen
        wanted = seen[-1][1] - self._enough
        for (at, count), (next_at, next_count) in zip(seen[-2::-1], seen[:0:-1], strict=True):
            if count <= wanted:
                return at + (wanted - count) / (next_count - count) * (next_at - at)
        return seen[0][0]

    def _since(self, start: float) -> float:
        now, total = self._seen[-1]
        return (total - self._count_at(start)) / (now - start)

    def seconds_for(self, more: int) -> float | None:
        """Estimates the time to grow by so much more; None if that cannot be told."""
        rate = self.per_second
        return more / rate if rate else None

    def bars(self, n: int, seconds: float) -> list[float | None]:
        """Returns the rates of the last n spans of so many seconds, the latest last.

        Spans begin at multiples of their length, so that bars keep their heights as they move on;
        the last one may not be over yet. None before the first sighting.
        """
        if len(self._seen) < 2:
            return [None] * n
        (first, _), (now, _) = self._seen[0], self._seen[-1]
        end = (math.ceil(now / seconds)) * seconds
        found: list[float | None] = []
        for i in range(n):
            start = end - (n - i) * seconds
            a, b = max(start, first), min(start + seconds, now)
            grown = self._count_at(b) - self._count_at(a) if b > a else 0.0
            found.append(grown / (b - a) if b > a else None)
        return found

    def _count_at(self, moment: float) -> float:
        """The count at a moment between the first sighting and the last."""
        seen = self._seen
        low, high = 0, len(seen) - 1
        while low + 1 < high:
            middle = (low + high) // 2
            if seen[middle][0] <= moment:
                low = middle
            else:
                high = middle
        (at, count), (next_at, next_count) = seen[low], seen[high]
        return count + (next_count - count) * (moment - at) / (next_at - at)


def sparkline(bars: list[float | None]) -> str:
    """Draws a character for each bar, the highest one full; spaces where nothing is known."""
    highest = max((bar for bar in bars if bar is not None), default=0.0)

    def block(bar: float | None) -> str:
        if bar is None:
            return " "
        return BLOCKS[min(7, math.ceil(8 * bar / highest) - 1)] if bar > 0 else BLOCKS[0]

    return "".join(map(block, bars))


def rate(per_second: float | None) -> str:
    """Writes a rate: `1,234/s`, `12.3/s`, `0.05/s`, `0/s`; a dash if it is not known."""
    if per_second is None:
        return "—"
    if per_second >= 99.95:
        return f"{per_second:,.0f}/s"
    if per_second >= 0.995:
        return f"{per_second:.1f}/s"
    return f"{per_second:.2f}/s" if per_second >= 0.005 else "0/s"
